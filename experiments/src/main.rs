//! `foretoken`: which speculation policy should this server run?
mod document;
mod problem;
fn main() {}
