//! The truth of a simulation through the public interface: what rounds of drafts accept, and how well confidences are
//! calibrated. One test binary.

mod acceptance;
mod confidence;
