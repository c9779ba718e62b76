//! Policies from other crates: a registered policy works like the policies in the crate's table, and a bad one is
//! refused. Everything is in one test, because a registration lasts as long as the process.

use foretoken_policies::{
    About, BadName, BadParameter, Belief, CannotRegister, Check, Definition, Fixed, Look, PolicyContext, PolicySpec,
    register,
};
use foretoken_sim::{BatchView, Coefficients, ContextReads, DraftLimits, DraftPlan, Drafting, SpecPolicy, Speculation};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A policy for tests that alternates from step to step between draft length `k` and draft length `share` · `k` (half
/// of `k` by default).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Seesaw {
    /// The longer of the two draft lengths.
    k: u32,
    share: f64,
}

impl Default for Seesaw {
    fn default() -> Self {
        Seesaw { k: 4, share: 0.5 }
    }
}

impl Definition for Seesaw {
    fn about(&self) -> About {
        About {
            summary: "drafts k and a share of it in turns",
            source: "a test",
            sees: "the index of the step",
            differences: "none",
        }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("seesaw");
        check.length("k", self.k)?;
        check.share("share", self.share)
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running { k: self.k.min(context.max_draft_len), share: self.share }))
    }
}

struct Running {
    k: u32,
    share: f64,
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.k)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        plan.fill(if batch.step.is_multiple_of(2) { self.k } else { (f64::from(self.k) * self.share) as u32 });
    }
}

/// Settings of a policy that are a bare number and not a table. A registration must refuse them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
struct Bare(u32);

impl Definition for Bare {
    fn about(&self) -> About {
        About { summary: "nothing", source: "a test", sees: "nothing", differences: "none" }
    }

    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    fn build(&self, _: &PolicyContext) -> Speculation {
        Speculation::Off
    }
}

fn read(json: &str) -> Result<PolicySpec, String> {
    serde_json::from_str(json).map_err(|e| e.to_string())
}

const BELIEF: Belief = Belief {
    draft: Coefficients { alpha_s: 1e-9, gamma_s: 2e-6, delta_s: 0.5e-3 },
    target: Coefficients { alpha_s: 1e-7, gamma_s: 40e-6, delta_s: 8e-3 },
    context_reads: ContextReads::Once,
    drafting: Drafting::Autoregressive,
};

#[test]
fn what_is_registered_is_one_of_the_policies() {
    let table = PolicySpec::all_names();
    let looks: Vec<Look> = PolicySpec::all().iter().map(PolicySpec::look).collect();
    let schema = || serde_json::to_value(schemars::schema_for!(PolicySpec)).unwrap();
    let before = schema();
    assert!(read(r#"{"seesaw": {}}"#).unwrap_err().contains("unknown variant `seesaw`"));

    // After a refused registration the policy's name is still free.
    let malformed = register("See Saw", Seesaw::default());
    assert!(matches!(malformed, Err(CannotRegister::Name(BadName::Malformed { .. }))), "{malformed:?}");
    let taken = register("fi-xed", Seesaw::default()).unwrap_err();
    assert_eq!(taken.to_string(), "`fi-xed` is taken: there is a policy `fixed`");
    let defaults = register("seesaw", Seesaw { k: 0, ..Seesaw::default() }).unwrap_err();
    assert_eq!(
        defaults.to_string(),
        "the defaults do not pass the policy's own check: seesaw.k: 0 is not a draft length from 1 to 32"
    );
    assert_eq!(register("bare", Bare(1)), Err(CannotRegister::NoTable("bare")));
    assert_eq!((PolicySpec::all_names(), schema()), (table, before.clone()));

    register("seesaw", Seesaw::default()).unwrap();
    register("steep-seesaw", Seesaw { k: 6, share: 0.0 }).unwrap();
    let twice = register("seesaw", Seesaw::default()).unwrap_err();
    assert_eq!(twice.to_string(), "`seesaw` is taken: there is a policy `seesaw`");

    // The list of all policies' names has the registered policies after the table's policies.
    let names = PolicySpec::all_names();
    assert_eq!((&names[..table.len()], &names[table.len()..]), (table, ["seesaw", "steep-seesaw"].as_slice()));
    let all = PolicySpec::all();
    assert_eq!(all.iter().map(PolicySpec::name).collect::<Vec<_>>(), names);
    let made: HashSet<Look> = all.iter().map(PolicySpec::look).collect();
    assert_eq!(made.len(), all.len(), "a look each");
    assert_eq!(all.iter().map(PolicySpec::look).take(looks.len()).collect::<Vec<_>>(), looks, "the table's stay");

    // Registered policies are read from JSON with their own defaults, and written to JSON.
    let (plain, steep) = (read(r#"{"seesaw": {}}"#).unwrap(), read(r#"{"steep-seesaw": {"k": 3}}"#).unwrap());
    assert_eq!((&plain, plain.label().as_str()), (&all[table.len()], "seesaw"));
    assert_eq!(steep.label(), "steep-seesaw[k=3]");
    assert_eq!(serde_json::to_string(&steep).unwrap(), r#"{"steep-seesaw":{"k":3,"share":0.0}}"#);
    for policy in [&plain, &steep] {
        assert_eq!(read(&serde_json::to_string(policy).unwrap()).as_ref(), Ok(policy));
    }
    assert_ne!(plain, steep);
    assert_ne!(plain, read(r#"{"seesaw": {"k": 3}}"#).unwrap());
    assert_ne!(plain, PolicySpec::Fixed(Fixed::default()));
    for (bad, what) in [
        (r#"{"seesaw": {"j": 1}}"#, "unknown field `j`"),
        (r#"{"seesaw": {"k": "long"}}"#, "invalid type: string"),
        (r#"{"seesaws": {}}"#, "unknown variant `seesaws`"),
    ] {
        let error = read(bad).unwrap_err();
        assert!(error.contains(what), "{error}");
    }

    // The error of a registered policy's check has the name under which the policy was registered. The policy can be
    // built.
    let bad = read(r#"{"steep-seesaw": {"share": 1.5}}"#).unwrap().check().unwrap_err();
    assert_eq!(bad.to_string(), "steep-seesaw.share: 1.5 is not a share from 0 to 1");
    assert!(plain.check().is_ok() && plain.summary().starts_with("drafts k") && !plain.sees_hidden_truth());
    let context = PolicyContext {
        belief: BELIEF,
        profile: &BELIEF,
        max_draft_len: 3,
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        seed: 1,
        staleness_steps: 2,
        draft_at: foretoken_sim::DraftAt::StepStart,
        categories: &[],
        told: None,
        truths: None,
        own_rates: None,
    };
    let Speculation::Policy(running) = plain.build(&context) else { panic!("a policy") };
    assert_eq!(running.limits().depth, 3);

    // The schema of policies has the registered policies after the table's policies.
    let after = schema();
    let each = |schema: &serde_json::Value| schema["oneOf"].as_array().unwrap().clone();
    assert_eq!(each(&after)[..table.len()], each(&before));
    let own: Vec<_> = each(&after)[table.len()..].iter().map(|one| one["required"][0].clone()).collect();
    assert_eq!(own, ["seesaw", "steep-seesaw"]);
    assert_eq!(after["$defs"]["Seesaw"]["properties"]["k"]["description"], "The longer of the two draft lengths.");
}
