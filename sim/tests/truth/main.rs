//! Tests the truth of a simulation through the public interface: what rounds of drafts accept, and how well confidences
//! are calibrated. All are in one test binary.

mod acceptance;
mod confidence;
