//! Compares draft trees with brute force and with theory, through the public interface. All tests in this folder are in
//! one test binary.

mod growth;
mod revealed;
mod shapes;
mod simulations;
