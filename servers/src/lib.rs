//! Real servers. A server is observed ([`observe`]) and its run recorded ([`recordings`]). The simulation is fitted to
//! recordings ([`calibrate`]), compared with them ([`compare`]), and gives advice (`calibrate::recommend`). [`serve`]
//! is the simulated engine behind HTTP, which answers as a server does.
//!
//! The modules need each other one way: `recordings` and `compare` need no other module, `observe` needs `recordings`,
//! `calibrate` needs `recordings` and `compare`, and `serve` needs none. Only `observe` and `serve` use a network; they
//! are built with the feature `observe`.

// A part of the program: CONTRIBUTING.md says which comments it has.
#![allow(missing_docs)]

// This `eprintln!` replaces the standard one. It escapes characters that could control a terminal, because messages
// quote names of files, keys and labels.
#[cfg(feature = "observe")]
#[macro_use(eprintln)]
extern crate foretoken_run;

pub mod calibrate;
pub mod compare;
#[cfg(feature = "observe")]
pub mod observe;
pub mod recordings;
#[cfg(feature = "observe")]
pub mod serve;
