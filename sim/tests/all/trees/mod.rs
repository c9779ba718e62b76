//! Compares draft trees with brute force and with theory, through the public interface.

mod growth;
mod revealed;
mod shapes;
mod simulations;
