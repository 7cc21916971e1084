//! What Kafka's own unit tests demand of a log, replayed against the engine: no mount, no broker.
//!
//! A test quotes the row that it replays in its doc comment, by number and by the name of Kafka's
//! test; `KAFKA_BEHAVIOURS.md` lists all rows, with the reason where one does not apply. `coverage`
//! holds the quotes of all tests of the project against that list, and the list against them.

#![allow(clippy::doc_markdown, reason = "rows are quoted word for word")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[path = "../support/mod.rs"]
mod support;

mod appending;
mod coverage;
mod home;
mod indexes;
mod reading;
mod recovery;
mod truncating;
mod validating;
