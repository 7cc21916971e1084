//! The schemas of Kafka's own records, read from the JSON files that Kafka generates its classes
//! from (`../schemas`, copied from its jars). A field is there in some versions; in some it may be
//! NULL; in some it is *tagged*, which means that it stands behind the others when it is not its
//! default. Versions that are *flexible* have tagged fields and short lengths.

use serde_json::Value;

use crate::inspect::dump::json;

/// One kind of record.
#[derive(Debug)]
pub struct Schema {
    /// Its number among its kind, which stands before its bytes.
    pub api_key: i16,
    /// Its name, such as `OffsetCommitValue`.
    pub name: String,
    /// Is it the key of a record of a coordinator?
    pub is_key: bool,
    /// The versions that Kafka knows.
    pub valid: Versions,
    /// The versions with tagged fields and short lengths.
    pub flexible: Versions,
    /// What it holds.
    pub fields: Vec<Field>,
}

/// One field.
#[derive(Debug)]
pub struct Field {
    /// Its name in JSON, and in what Kafka says of it.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// The versions that have it.
    pub versions: Versions,
    /// The versions in which it may be NULL.
    pub nullable: Versions,
    /// Its tag and the versions in which it is tagged.
    pub tagged: Option<(i32, Versions)>,
    /// What it is where it is not stored.
    pub default: Value,
}

/// What a field or the element of an array holds, by the names of the schemas.
#[derive(Debug)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Array(Box<Kind>),
    Struct(Vec<Field>),
}

/// The versions from `first` to `last`, both included; none when `first` is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    first: i32,
    last: i32,
}

impl Versions {
    const NONE: Versions = Versions { first: 0, last: -1 };

    /// Is `version` one of them?
    pub fn contains(self, version: i16) -> bool {
        (self.first..=self.last).contains(&i32::from(version))
    }

    /// From `3`, `1-2`, `4+` or `none`.
    fn parse(text: &str) -> Versions {
        let number = |text: &str| text.trim().parse().ok();
        let parsed = if let Some(first) = text.strip_suffix('+') {
            number(first).map(|first| (first, i32::MAX))
        } else if let Some((first, last)) = text.split_once('-') {
            number(first).zip(number(last))
        } else {
            number(text).map(|only| (only, only))
        };
        parsed.map_or(Versions::NONE, |(first, last)| Versions { first, last })
    }
}

impl Schema {
    /// From the text of a schema file. Fails with what is wrong in it; the files are ours, and a
    /// test reads them all.
    pub fn parse(text: &str) -> Result<Schema, String> {
        let plain = without_comments(text);
        let schema: Value = serde_json::from_str(&plain).map_err(|error| error.to_string())?;
        let common = schema.get("commonStructs").unwrap_or(&Value::Null);
        let api_key = schema.get("apiKey").and_then(Value::as_i64).unwrap_or(0);
        Ok(Schema {
            api_key: i16::try_from(api_key).map_err(|error| error.to_string())?,
            name: word(&schema, "name").to_owned(),
            is_key: word(&schema, "type") == "coordinator-key",
            valid: versions(&schema, "validVersions"),
            flexible: versions(&schema, "flexibleVersions"),
            fields: fields(&schema, common)?,
        })
    }

    /// The name as a constant: `REGISTER_BROKER_RECORD`.
    pub fn constant_name(&self) -> String {
        let mut name = String::new();
        for letter in self.name.chars() {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        name
    }
}

fn fields(of: &Value, common: &Value) -> Result<Vec<Field>, String> {
    let list = of.get("fields").and_then(Value::as_array).ok_or("no list of fields")?;
    list.iter().map(|field| parse_field(field, common)).collect()
}

fn parse_field(field: &Value, common: &Value) -> Result<Field, String> {
    let kind = parse_kind(word(field, "type"), field, common)?;
    let tag = field.get("tag").and_then(Value::as_i64).and_then(|tag| i32::try_from(tag).ok());
    // A field that is always tagged need not say twice which versions have it.
    let presence = if field.get("versions").is_some() { "versions" } else { "taggedVersions" };
    Ok(Field {
        name: lower_first(word(field, "name")),
        versions: versions(field, presence),
        nullable: versions(field, "nullableVersions"),
        tagged: tag.map(|tag| (tag, versions(field, "taggedVersions"))),
        default: default_of(&kind, field.get("default"))?,
        kind,
    })
}

fn parse_kind(name: &str, field: &Value, common: &Value) -> Result<Kind, String> {
    Ok(match name {
        "bool" => Kind::Bool,
        "int8" => Kind::Int8,
        "int16" => Kind::Int16,
        "uint16" => Kind::Uint16,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "float64" => Kind::Float64,
        "uuid" => Kind::Uuid,
        "string" => Kind::String,
        "bytes" => Kind::Bytes,
        _ => match name.strip_prefix("[]") {
            Some(element) => Kind::Array(Box::new(parse_kind(element, field, common)?)),
            None => Kind::Struct(parse_struct(name, field, common)?),
        },
    })
}

/// The fields of a struct, which stand in the field itself or among the common ones.
fn parse_struct(name: &str, field: &Value, common: &Value) -> Result<Vec<Field>, String> {
    if field.get("fields").is_some() {
        return fields(field, common);
    }
    let named = |common: &&Value| word(common, "name") == name;
    let found = common.as_array().and_then(|structs| structs.iter().find(named));
    fields(found.ok_or_else(|| format!("no struct `{name}`"))?, common)
}

fn default_of(kind: &Kind, written: Option<&Value>) -> Result<Value, String> {
    let text = match written {
        Some(Value::String(text)) if text != "null" => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        Some(Value::String(_)) => return Ok(Value::Null),
        // NULL that is not written as text is no default to Kafka's generator.
        Some(_) | None => return Ok(empty(kind)),
    };
    let default = match kind {
        Kind::String => Ok(Value::String(text)),
        Kind::Float64 => text.parse().map(json::float).map_err(|error| error.to_string()),
        _ => serde_json::from_str(&text).map_err(|error| error.to_string()),
    };
    default.map_err(|error| format!("default `{written:?}`: {error}"))
}

/// The default where the schema has none.
fn empty(kind: &Kind) -> Value {
    match kind {
        Kind::Bool => false.into(),
        Kind::Int8 | Kind::Int16 | Kind::Uint16 | Kind::Int32 | Kind::Int64 => 0.into(),
        Kind::Float64 => json::float(0.0),
        Kind::Uuid => "AAAAAAAAAAAAAAAAAAAAAA".into(),
        Kind::String | Kind::Bytes => "".into(),
        Kind::Array(_) => Value::Array(Vec::new()),
        Kind::Struct(fields) => {
            fields.iter().map(|field| (field.name.clone(), field.default.clone())).collect()
        }
    }
}

fn word<'a>(of: &'a Value, name: &str) -> &'a str {
    of.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn versions(of: &Value, name: &str) -> Versions {
    Versions::parse(word(of, name))
}

fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().into_iter().map(|first| first.to_ascii_lowercase()).chain(letters).collect()
}

/// Without the comments that begin with `//` outside of text; JSON has none.
fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.get(..comment_start(line)).unwrap_or(line)).collect()
}

fn comment_start(line: &str) -> usize {
    let (mut in_text, mut before) = (false, 0);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'"' if before != b'\\' => in_text = !in_text,
            b'/' if before == b'/' && !in_text => return at - 1,
            _ => {}
        }
        before = byte;
    }
    line.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        // About "this".
        { "apiKey": 7, "type": "coordinator-key", "name": "TwoFieldsRecord", // behind
          "validVersions": "0-2", "flexibleVersions": "1+",
          "fields": [
            { "name": "Url", "type": "string", "versions": "0+", "about": "http://a // b" },
            { "name": "Many", "type": "[]Part", "versions": "1", "nullableVersions": "1",
              "taggedVersions": "1+", "tag": 3, "default": "null" } ],
          "commonStructs": [ { "name": "Part", "versions": "0+", "fields": [
            { "name": "Size", "type": "int32", "versions": "0+", "default": "-1" } ] } ] }"#;

    #[test]
    fn a_schema_is_read_with_its_comments() {
        let schema = Schema::parse(TEXT).unwrap();
        assert_eq!((schema.api_key, schema.is_key), (7, true));
        assert_eq!(schema.constant_name(), "TWO_FIELDS_RECORD");
        assert!(schema.valid.contains(2) && !schema.valid.contains(3));
        assert!(!schema.flexible.contains(0) && schema.flexible.contains(9));
        let [url, many] = &schema.fields[..] else { panic!("{schema:?}") };
        assert_eq!((url.name.as_str(), &url.default), ("url", &Value::from("")));
        assert_eq!(many.tagged, Some((3, Versions::parse("1+"))));
        assert_eq!(many.default, Value::Null);
        let Kind::Array(element) = &many.kind else { panic!("{many:?}") };
        let Kind::Struct(part) = &**element else { panic!("{many:?}") };
        assert_eq!((part[0].name.as_str(), &part[0].default), ("size", &Value::from(-1)));
    }

    #[test]
    fn versions_are_ranges() {
        let held =
            |text| (-1..5).filter(|v| Versions::parse(text).contains(*v)).collect::<Vec<_>>();
        assert_eq!(held("none"), [0_i16; 0]);
        assert_eq!(held(""), [0_i16; 0]);
        assert_eq!(held("2"), [2]);
        assert_eq!(held("1-3"), [1, 2, 3]);
        assert_eq!(held("3+"), [3, 4]);
    }

    #[test]
    fn wrong_schemas_are_refused() {
        for wrong in ["", "{}", r#"{ "fields": [ { "name": "A", "type": "Nothing" } ] }"#] {
            assert!(Schema::parse(wrong).is_err(), "{wrong}");
        }
    }
}
