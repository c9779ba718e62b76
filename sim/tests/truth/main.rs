//! Tests the truth of a simulation (which draft tokens are right) through the public interface: how many draft tokens
//! of a step are accepted, and how well confidences are calibrated. All are in one test binary.

mod acceptance;
mod confidence;
