//! Metrics and traces that the policies of SMG (a router for LLM servers) report. This program, which records SMG's
//! decisions, drops them.

pub mod metrics {
    pub struct Metrics;

    impl Metrics {
        pub fn record_cache_aware_match_ratio<T>(_: T) {}
        pub fn record_kv_index_lookup(_: &str, _: f64) {}
        pub fn record_policy_inflight_reconciled<T>(_: &str, _: T) {}
        pub fn record_worker_cache_aware_policy_branch(_: &str) {}
        pub fn record_worker_prefix_hash_policy_branch(_: &str) {}
        pub fn set_cache_placement_entries<T>(_: &str, _: T) {}
        pub fn set_cache_tree_chars<T>(_: &str, _: T) {}
        pub fn set_cache_tree_tenants<T>(_: &str, _: &str, _: T) {}
        pub fn set_cache_tree_tokens<T>(_: &str, _: T) {}
    }
}

pub mod cache_trace {
    use serde_json::Value;

    pub fn enabled() -> bool {
        false
    }

    pub fn gate(_: Value) {}
    pub fn mark_truncated() {}
    pub fn prediction(_: Value) {}
    pub fn score(_: Value) {}
}
