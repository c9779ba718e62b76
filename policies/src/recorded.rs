//! Shared by the tests that replay recorded decisions of policies in released engines. `tests/policies` has the
//! recordings (fixtures) and the programs that made them.

use serde::de::DeserializeOwned;
use std::path::Path;

/// Reads and unpacks the fixture `name`, a text in Zstandard, and returns its lines.
pub fn lines(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/policies").join(name);
    let packed = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let text = zstd::decode_all(packed.as_slice()).expect("Zstandard");
    String::from_utf8(text).expect("ASCII").lines().map(str::to_owned).collect()
}

/// Reads the fixture `name`. Each of its lines is one recorded history of an engine's policy (inputs and decisions) in
/// JSON.
pub fn histories<T: DeserializeOwned>(name: &str) -> Vec<T> {
    lines(name).iter().map(|line| read(line)).collect()
}

/// Parses one line of a recorded fixture, which is JSON.
pub fn read<T: DeserializeOwned>(line: &str) -> T {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// One step of the generator SplitMix64: the output that follows the state `value`.
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The pseudo-random number of one random choice in a recorded history, such as whether a draft token is accepted. The
/// programs that record histories draw the same number in Python (`tests/vllm/chance.py`).
pub fn draw(seed: u64, kind: u64, request: u64, position: u64) -> u64 {
    mix(mix(mix(mix(seed) ^ kind) ^ request) ^ position)
}

/// True if `a` and `b` differ by at most a millionth of the greater one.
pub fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

#[test]
fn draws_are_those_of_the_recorders() {
    assert_eq!([draw(7, 1, 3, 10), draw(7, 2, 3, 10)], [8_220_720_420_851_324_349, 10_707_932_757_137_194_472]);
}
