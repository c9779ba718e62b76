//! Tests of the engine, of draft trees and of the truth, through the public interface. All these tests are in one
//! binary.

mod allocations;
mod trees;
mod truth;
