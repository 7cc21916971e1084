//! What Apache Kafka's own classes read from a fixture: records, offsets, answers to lookups.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::fixture;

/// One partition of a set, as Kafka read it.
pub struct Expected {
    pub set: String,
    /// `topic-partition`, the directory's name.
    pub name: String,
    /// `NAME.partition.json`.
    pub facts: Value,
    /// Every record in the files, control records and those below the log start too.
    pub everything: Vec<Row>,
    pub lookups: Vec<Lookup>,
}

/// A record, as `NAME.jsonl` has it.
#[derive(Clone)]
pub struct Row {
    pub offset: i64,
    pub ts: i64,
    pub append_time: bool,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub epoch: i64,
    pub transactional: bool,
    pub control: Option<String>,
    pub producer: i64,
    pub batch_position: usize,
    pub batch_size: usize,
    pub segment: String,
}

/// A time and the first data record at or after it.
pub struct Lookup {
    pub ts: i64,
    pub offset: Option<i64>,
}

/// Every partition of a set.
pub fn partitions(set: &str) -> Vec<Expected> {
    let directory = fixture(set).join("expected");
    let mut names: Vec<String> = fs::read_dir(&directory)
        .expect("the fixtures are there")
        .filter_map(|entry| entry.expect("an entry").file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_suffix(".partition.json")?.to_string()))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no expectations in {}", directory.display());
    names.iter().map(|name| partition(set, name)).collect()
}

/// One partition of a set.
pub fn partition(set: &str, name: &str) -> Expected {
    let directory = fixture(set).join("expected");
    let text = |path: PathBuf| {
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let rows = |path: PathBuf| -> Vec<Value> {
        text(path).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let facts = text(directory.join(format!("{name}.partition.json")));
    Expected {
        set: set.into(),
        name: name.into(),
        facts: serde_json::from_str(&facts).expect("JSON"),
        everything: rows(directory.join(format!("{name}.jsonl"))).iter().map(Row::new).collect(),
        lookups: rows(directory.join(format!("lookup/{name}.jsonl")))
            .iter()
            .map(|row| Lookup {
                ts: number(row, "ts"),
                offset: Some(number(row, "data_offset")).filter(|offset| *offset >= 0),
            })
            .collect(),
    }
}

impl Row {
    fn new(row: &Value) -> Self {
        let headers = row["headers"].as_array().expect("headers");
        let header = |h: &Value| (h[0].as_str().expect("a name").to_string(), decode(&h[1]));
        Self {
            offset: number(row, "offset"),
            ts: number(row, "ts"),
            append_time: row["tstype"] == "append",
            key: decode(&row["key"]),
            value: decode(&row["value"]),
            headers: headers.iter().map(header).collect(),
            epoch: number(row, "epoch"),
            transactional: row["txn"] == true,
            control: (row["control"] == true)
                .then(|| row["control_type"].as_str().unwrap_or("other").to_string()),
            producer: number(row, "producer_id"),
            batch_position: size(row, "batch_position"),
            batch_size: size(row, "batch_size"),
            segment: row["segment"].as_str().expect("a segment").to_string(),
        }
    }

    /// The value as the tree shows it: NULL reads as nothing.
    pub fn value(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }
}

impl Expected {
    pub fn number(&self, name: &str) -> i64 {
        number(&self.facts, name)
    }

    /// The data records that are there: no control records, none below the log start.
    pub fn rows(&self) -> Vec<Row> {
        let start = self.number("log_start_offset");
        let there = |row: &&Row| row.control.is_none() && row.offset >= start;
        self.everything.iter().filter(there).cloned().collect()
    }

    /// What became of the record's transaction.
    pub fn txn(&self, row: &Row) -> &'static str {
        let ends = |other: &&Row| other.producer == row.producer && other.offset > row.offset;
        let markers = self.everything.iter().filter(|other| other.control.is_some());
        match markers.clone().find(ends).and_then(|end| end.control.as_deref()) {
            Some("COMMIT") => "committed",
            Some(_) => "aborted",
            None => "open",
        }
    }

    /// The JSON envelope of contract 3.3, as a range has it.
    pub fn envelope(&self, row: &Row) -> Value {
        let (topic, number) = self.name.rsplit_once('-').expect("topic-partition");
        let mut out = Map::new();
        out.insert("topic".into(), topic.into());
        out.insert("partition".into(), number.parse::<i64>().expect("a number").into());
        out.insert("offset".into(), row.offset.into());
        if row.ts != -1 {
            let kind = if row.append_time { "logappend" } else { "create" };
            out.insert("tstype".into(), kind.into());
            out.insert("ts".into(), row.ts.into());
        }
        if !row.headers.is_empty() {
            out.insert("headers".into(), row.headers.iter().map(header).collect());
        }
        for (name, bytes) in [("key", &row.key), ("payload", &row.value)] {
            let (text, binary) = spelled(bytes.as_deref());
            out.insert(name.into(), text);
            if let Some(binary) = binary {
                out.insert(format!("{name}_b64"), binary.into());
            }
        }
        if row.epoch >= 0 {
            out.insert("leader_epoch".into(), row.epoch.into());
        }
        if row.transactional {
            out.insert("transactional".into(), true.into());
        }
        Value::Object(out)
    }
}

fn header((name, value): &(String, Option<Vec<u8>>)) -> Value {
    match spelled(value.as_deref()) {
        (text, None) => json!([name, text]),
        (text, Some(binary)) => json!([name, text, binary]),
    }
}

/// Text, or null and base64.
fn spelled(bytes: Option<&[u8]>) -> (Value, Option<String>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => (Value::Null, None),
        Some((_, Ok(text))) => (text.into(), None),
        Some((bytes, Err(_))) => (Value::Null, Some(STANDARD.encode(bytes))),
    }
}

fn decode(text: &Value) -> Option<Vec<u8>> {
    text.as_str().map(|text| STANDARD.decode(text).expect("base64"))
}

fn number(row: &Value, name: &str) -> i64 {
    row[name].as_i64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

fn size(row: &Value, name: &str) -> usize {
    usize::try_from(number(row, name)).expect("a size")
}
