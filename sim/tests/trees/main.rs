//! Compares draft trees with brute force and theory, through the public interface. One test binary.

mod growth;
mod revealed;
mod shapes;
mod simulations;
