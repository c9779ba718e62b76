//! Whole-system tests of Foretoken live in `tests/`; this crate has no code of its own.
