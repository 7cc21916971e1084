//! Kafka's own records read from their bytes, as their schema says, into the JSON that Kafka's
//! generated `JsonConverter` classes make of them.
//!
//! An error is the message of the Java exception that the generated classes would throw, because
//! the dump tool prints it; "null" is that of bytes that end in the middle of a number.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::Value;

use crate::format::checkpoint::Uuid;
use crate::inspect::dump::json;
use crate::inspect::dump::schema::{Field, Kind, Schema};
use crate::inspect::dump::text::java_text;

/// Kafka takes no larger arrays.
const MOST_ELEMENTS: i32 = 1_000_000;
/// Kafka takes no more tagged fields than this.
const MOST_TAGGED_FIELDS: i32 = 10_000;

/// What is left of a record.
#[derive(Clone, Copy, Debug)]
pub struct Wire<'a> {
    rest: &'a [u8],
}

/// The versions that matter while one record is read and shown.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The version that the bytes have.
    pub stored: i16,
    /// The version that is shown; another one only in control records.
    pub shown: i16,
}

impl<'a> Wire<'a> {
    /// A reading of these bytes.
    pub fn new(bytes: &'a [u8]) -> Wire<'a> {
        Wire { rest: bytes }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The record with this schema that begins here.
    pub fn read(&mut self, schema: &Schema, shape: Shape) -> Result<Value, String> {
        let context = Context {
            shape,
            flexible: schema.flexible.contains(shape.stored),
            known: schema.valid.contains(shape.stored),
        };
        self.read_struct(&schema.fields, context)
    }

    fn read_struct(&mut self, fields: &[Field], context: Context) -> Result<Value, String> {
        let mut values = Vec::with_capacity(fields.len());
        for field in fields {
            let tagged = field.is_tagged(context.shape.stored);
            let stored = field.versions.contains(context.shape.stored) && !tagged;
            let value =
                if stored { self.read_field(field, context)? } else { field.default.clone() };
            values.push(value);
        }
        if context.flexible {
            self.read_tagged(fields, &mut values, context)?;
        }
        let shown = |field: &Field, value: &Value| {
            let version = context.shape.shown;
            let omitted = field.is_tagged(version) && *value == field.default;
            field.versions.contains(version) && !omitted
        };
        let pairs = fields.iter().zip(values).filter(|(field, value)| shown(field, value));
        let named = pairs.map(|(field, value)| (field.name.clone(), value));
        Ok(Value::Object(named.collect()))
    }

    fn read_tagged(
        &mut self,
        fields: &[Field],
        values: &mut [Value],
        context: Context,
    ) -> Result<(), String> {
        let count = self.unsigned_varint()?;
        self.check_tagged_count(count)?;
        for _ in 0..count {
            let (tag, size) = (self.unsigned_varint()?, self.unsigned_varint()?);
            let known = |field: &Field| {
                let version = context.shape.stored;
                field.is_tagged(version) && field.tagged.is_some_and(|(this, _)| this == tag)
            };
            match fields.iter().zip(values.iter_mut()).find(|(field, _)| known(field)) {
                Some((field, value)) => *value = self.read_field(field, context)?,
                None => drop(self.bytes(size)?),
            }
        }
        Ok(())
    }

    fn check_tagged_count(&self, count: i32) -> Result<(), String> {
        let remaining = self.remaining();
        if count < 0 {
            return Err(format!("Invalid negative number of tagged fields {count}"));
        }
        if usize::try_from(count).is_ok_and(|count| count > remaining) {
            return Err(format!(
                "Tried to read {count} tagged fields, but there are only {remaining} bytes \
                 remaining."
            ));
        }
        if count > MOST_TAGGED_FIELDS {
            return Err(format!(
                "Tried to read {count} tagged fields, which exceeds the maximum allowed count of \
                 {MOST_TAGGED_FIELDS}."
            ));
        }
        Ok(())
    }

    fn read_field(&mut self, field: &Field, context: Context) -> Result<Value, String> {
        let nullable = field.nullable.contains(context.shape.stored);
        if let Kind::Struct(_) = field.kind
            && nullable
            && self.is_null_struct(field.is_tagged(context.shape.stored))?
        {
            return Ok(Value::Null);
        }
        self.read_value(&field.kind, context, &field.name, nullable)
    }

    /// What stands before a struct that may be NULL.
    fn is_null_struct(&mut self, tagged: bool) -> Result<bool, String> {
        Ok(if tagged { self.unsigned_varint()? <= 0 } else { self.int8()? < 0 })
    }

    fn read_value(
        &mut self,
        kind: &Kind,
        context: Context,
        name: &str,
        nullable: bool,
    ) -> Result<Value, String> {
        Ok(match kind {
            Kind::Bool => (self.int8()? != 0).into(),
            Kind::Int8 => self.int8()?.into(),
            Kind::Int16 => self.int16()?.into(),
            Kind::Uint16 => u16::from_be_bytes(self.array()?).into(),
            Kind::Int32 => self.int32()?.into(),
            Kind::Int64 => i64::from_be_bytes(self.array()?).into(),
            Kind::Float64 => json::float(f64::from_be_bytes(self.array()?)),
            Kind::Uuid => Uuid(self.array()?).to_string().into(),
            Kind::Struct(fields) if context.known => self.read_struct(fields, context)?,
            // In a record itself Kafka takes versions that it does not know, in structs not.
            Kind::Struct(_) => return Err(format!("Can't read version {}", context.shape.stored)),
            Kind::String => {
                let length = self.length(context, LengthField::Short)?;
                let Some(length) = present(length, nullable, name)? else { return Ok(Value::Null) };
                if length > i32::from(i16::MAX) {
                    return Err(format!("string field {name} had invalid length {length}"));
                }
                java_text(self.bytes(length)?).into()
            }
            Kind::Bytes => {
                let length = self.length(context, LengthField::Int)?;
                let Some(length) = present(length, nullable, name)? else { return Ok(Value::Null) };
                BASE64_STANDARD.encode(self.bytes(length)?).into()
            }
            Kind::Array(element) => {
                let length = self.length(context, LengthField::Int)?;
                let Some(length) = present(length, nullable, name)? else { return Ok(Value::Null) };
                self.elements(element, length, context, name)?
            }
        })
    }

    fn elements(
        &mut self,
        element: &Kind,
        count: i32,
        context: Context,
        name: &str,
    ) -> Result<Value, String> {
        let remaining = self.remaining();
        if usize::try_from(count).is_ok_and(|count| count > remaining) {
            return Err(format!(
                "Tried to allocate a collection of size {count}, but there are only {remaining} \
                 bytes remaining."
            ));
        }
        if count > MOST_ELEMENTS {
            return Err(format!(
                "Tried to read a collection of size {count}, which exceeds the maximum allowed \
                 size of {MOST_ELEMENTS}."
            ));
        }
        let name = format!("{name} element");
        let read = |_| self.read_value(element, context, &name, false);
        (0..count).map(read).collect::<Result<Vec<_>, _>>().map(Value::Array)
    }

    /// A length field; below 0 is NULL.
    fn length(&mut self, context: Context, field: LengthField) -> Result<i32, String> {
        match field {
            _ if context.flexible => Ok(self.unsigned_varint()?.wrapping_sub(1)),
            LengthField::Short => self.int16().map(i32::from),
            LengthField::Int => self.int32(),
        }
    }

    fn int8(&mut self) -> Result<i8, String> {
        self.array().map(i8::from_be_bytes)
    }

    /// A 16-bit number.
    pub fn int16(&mut self) -> Result<i16, String> {
        self.array().map(i16::from_be_bytes)
    }

    /// A 32-bit number.
    pub fn int32(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_be_bytes)
    }

    /// Seven bits a byte, the lowest first, at most five bytes.
    pub fn unsigned_varint(&mut self) -> Result<i32, String> {
        let mut raw = 0_u32;
        for place in 0..5 {
            let [byte] = self.array()?;
            raw |= u32::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(raw.cast_signed());
            }
        }
        Err(format!(
            "Varint is too long, the most significant bit in the 5th byte is set, converted value: \
             {raw:x}"
        ))
    }

    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], String> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or("null")?;
        self.rest = rest;
        Ok(*taken)
    }

    fn bytes(&mut self, count: i32) -> Result<&'a [u8], String> {
        let wanted = usize::try_from(count).map_err(|_| count.to_string())?;
        let (taken, rest) = self.rest.split_at_checked(wanted).ok_or_else(|| {
            let has = self.rest.len();
            format!("Error reading byte array of {count} byte(s): only {has} byte(s) available")
        })?;
        self.rest = rest;
        Ok(taken)
    }
}

/// The versions, and what the stored one is to the schema.
#[derive(Clone, Copy)]
struct Context {
    shape: Shape,
    flexible: bool,
    known: bool,
}

/// The length field of versions that are not flexible.
#[derive(Clone, Copy)]
enum LengthField {
    Short,
    Int,
}

/// A length that is not that of NULL; `None` where NULL is allowed.
fn present(length: i32, nullable: bool, name: &str) -> Result<Option<i32>, String> {
    match length {
        0.. => Ok(Some(length)),
        _ if nullable => Ok(None),
        _ => Err(format!("non-nullable field {name} was serialized as null")),
    }
}

impl Field {
    fn is_tagged(&self, version: i16) -> bool {
        self.tagged.is_some_and(|(_, versions)| versions.contains(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SCHEMA: &str = r#"
        { "apiKey": 0, "type": "data", "name": "Sample", "validVersions": "0-1",
          "flexibleVersions": "1+", "fields": [
            { "name": "Id", "type": "uuid", "versions": "0+", "tag": 2, "taggedVersions": "1+" },
            { "name": "Name", "type": "string", "versions": "0+", "nullableVersions": "1+" },
            { "name": "Rate", "type": "float64", "versions": "1+", "default": "0.5" },
            { "name": "Parts", "type": "[]Part", "versions": "0+", "fields": [
              { "name": "Port", "type": "uint16", "versions": "0+" },
              { "name": "Data", "type": "bytes", "versions": "1+" } ] } ] }"#;

    fn read(version: i16, bytes: &[u8]) -> Result<Value, String> {
        let schema = Schema::parse(SCHEMA).expect("a schema");
        let mut wire = Wire::new(bytes);
        let value = wire.read(&schema, Shape { stored: version, shown: version })?;
        assert_eq!(wire.remaining(), 0);
        Ok(value)
    }

    #[test]
    fn versions_that_are_not_flexible_have_long_lengths() {
        let bytes = [&[7; 16][..], b"\0\x01a\0\0\0\x01\xff\xfe"].concat();
        let meant = json!({ "id": "BwcHBwcHBwcHBwcHBwcHBw", "name": "a",
            "parts": [{ "port": 65534 }] });
        assert_eq!(read(0, &bytes), Ok(meant));
    }

    #[test]
    fn flexible_versions_have_tagged_fields() {
        let start = b"\0\x3f\xf0\0\0\0\0\0\0\x02\0\x50\x03hi\0";
        let without =
            json!({ "name": null, "rate": 1.0, "parts": [{ "port": 80, "data": "aGk=" }] });
        assert_eq!(read(1, &[&start[..], b"\0"].concat()), Ok(without.clone()));
        let unknown = [&start[..], b"\x01\x09\x01x"].concat();
        assert_eq!(read(1, &unknown), Ok(without));
        let tagged = [&start[..], b"\x01\x02\x10", &[0xff; 16]].concat();
        assert_eq!(read(1, &tagged).unwrap()["id"], "_____________________w");
    }

    #[test]
    fn what_is_wrong_is_said_in_kafkas_words() {
        let id = [0; 16];
        for (bytes, message) in [
            (&b""[..], "null"),
            (b"\xff\xff", "non-nullable field name was serialized as null"),
            (b"\0\x05ab", "Error reading byte array of 5 byte(s): only 2 byte(s) available"),
            (
                b"\0\0\0\0\0\x09\0",
                "Tried to allocate a collection of size 9, but there are only 1 bytes remaining.",
            ),
        ] {
            assert_eq!(read(0, &[&id[..], bytes].concat()), Err(message.to_owned()));
        }
        let too_long = "Varint is too long, the most significant bit in the 5th byte is set, \
                        converted value: ffffffff";
        assert_eq!(read(1, &[0xff; 9]), Err(too_long.to_owned()));
    }
}
