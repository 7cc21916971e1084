//! Each promise of SEMANTICS.md about a mount, kept by a real mount.
//!
//! A test quotes the sentence that it proves, by number and word for word, in its doc comment;
//! `coverage` holds the quotes against the page, and the page against the quotes.

#![allow(clippy::doc_markdown, reason = "the contract is quoted word for word")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[path = "../support/mod.rs"]
mod support;

mod append;
mod bombs;
mod config;
mod coverage;
mod damage;
mod formats;
mod layout;
mod mounting;
mod names;
mod partitions;
mod recovery;
mod remade;
mod rolling;
mod sizes;
mod times;
mod tree;
mod unix;
