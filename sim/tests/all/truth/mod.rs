//! Tests which draft tokens are right in a simulation (the truth), through the public interface: how many draft tokens
//! of a step are accepted, and how well confidences are calibrated.

mod acceptance;
mod confidence;
