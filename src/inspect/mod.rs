//! Reading a log to explain it: values and text out, nothing is printed here and nothing is shown
//! as a file.

pub mod check;
pub mod dump;
pub mod page_cache;
pub mod repair;
pub mod xray;
