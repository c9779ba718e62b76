//! The rungs of a ladder, which splits a policy's loss against the best oracle, in order from the policy without added
//! knowledge to the oracle.

/// The number of the first rung that is knowledge which no server has when it drafts.
pub const HIDDEN: usize = 4;

/// The rungs of a ladder in order: (name, the knowledge that the policy gets on this rung).
pub const RUNGS: [(&str, &str); 7] = [
    ("cost", "the true cost of passes instead of its belief"),
    ("calibration", "the true calibration of the draft's confidences"),
    ("rates", "the true acceptance of each request"),
    ("rule", "the best choice for all that was observed, instead of its own rule (knows-rates)"),
    ("confidences", "every confidence of the round before it drafts (knows-confidences)"),
    ("lengths", "the tokens that each request has still to make (knows-lengths)"),
    ("hindsight", "which drafts are right (the best oracle)"),
];
