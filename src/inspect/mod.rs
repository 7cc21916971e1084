//! Reading a log to explain it: values out, nothing is printed here and nothing is shown as a file.

pub mod check;
pub mod repair;
