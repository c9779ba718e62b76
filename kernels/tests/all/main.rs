//! Tests of models, devices and the device executor, through the public interface. All these tests are in one binary;
//! the tests of a GPU have another one, which is carried to machines that have a GPU.

mod common;
mod executor;
mod golden;
mod invariance;
mod pair;
mod serving;
mod speculation;
mod teacher;
