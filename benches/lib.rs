//! The library is empty: the benchmarks beside it are programs of their own.
