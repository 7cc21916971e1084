//! The `offsetfs` program.
fn main() {}
