//! Tests of policies in simulated engines, through the public interface. All these tests are in one binary.

mod boundary;
mod estimates;
mod specforge;
