//! Trees against brute force and theory, from outside. One binary.

mod growth;
mod revealed;
mod shapes;
mod worlds;
