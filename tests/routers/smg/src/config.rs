//! The types of settings that the routing policies of SMG (a router for LLM servers) use. This file stands in for SMG's
//! own module.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheIndexKind {
    #[default]
    Tree,
    Hash,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerOfTwoLoadMetric {
    #[default]
    ExpectedWait,
    Requests,
    LeastRequests,
}
