//! Checks the names of policies: their form, and that no other policy has the name.

/// Why a name cannot be the name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// The policy name is not in kebab-case, or has more than 40 characters.
    #[error("`{name}` is no name for a policy: {why}")]
    Malformed {
        /// The policy name that was refused.
        name: String,
        /// What is wrong with the form of the policy name.
        why: &'static str,
    },
    /// Another policy has this name, or a name that differs only in hyphens, underscores or case.
    #[error("`{name}` is taken: there is a policy `{by}`")]
    Taken {
        /// The policy name that was refused.
        name: String,
        /// The policy that has this name, or one like it, already.
        by: String,
    },
}

/// Longest name of a policy, in characters. Labels, file names and tables have room for it.
const LONGEST: usize = 40;

/// Refuses names that are not in kebab-case: words of lower-case letters and digits with single hyphens between them,
/// the first beginning with a letter. Names of more than 40 characters are refused too.
///
/// # Errors
/// [`BadName::Malformed`].
pub(crate) fn kebab_case(name: &str) -> Result<(), BadName> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > LONGEST {
        "it has more than 40 characters"
    } else if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        "only lower-case letters, digits and hyphens may be in it, as in `my-policy`"
    } else if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        "it must begin with a letter"
    } else if name.ends_with('-') || name.contains("--") {
        "hyphens stand singly, between words"
    } else {
        return Ok(());
    };
    Err(BadName::Malformed { name: name.into(), why })
}

/// Refuses a name that is in `taken`. Hyphens, underscores and case are ignored: `fixed` and `fi-xed` would be one name
/// in prose and in code.
///
/// # Errors
/// [`BadName::Taken`].
pub(crate) fn free<'a>(name: &str, taken: impl IntoIterator<Item = &'a str>) -> Result<(), BadName> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    match taken.into_iter().find(|other| plain(other) == plain(name)) {
        Some(by) => Err(BadName::Taken { name: name.into(), by: by.into() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_kebab_case() {
        for good in ["a", "fixed", "sglang-gen1", "my-2nd-policy", &"a".repeat(40)] {
            assert_eq!(kebab_case(good), Ok(()));
        }
        for (bad, why) in [
            ("", "empty"),
            (&*"a".repeat(41), "40"),
            ("Fixed", "lower-case"),
            ("my_policy", "lower-case"),
            ("my policy", "lower-case"),
            ("../up", "lower-case"),
            ("größe", "lower-case"),
            ("2nd", "begin with a letter"),
            ("-a", "begin with a letter"),
            ("a-", "hyphens"),
            ("a--b", "hyphens"),
        ] {
            let error = kebab_case(bad).expect_err(bad).to_string();
            assert!(error.contains(why) && error.contains(&format!("`{bad}`")), "{error}");
        }
    }

    #[test]
    fn names_that_read_alike_are_taken() {
        assert_eq!(free("mine", ["fixed"]), Ok(()));
        for alike in ["ema-tier", "ematier", "e-ma-tier"] {
            let taken = BadName::Taken { name: alike.into(), by: "ema-tier".into() };
            assert_eq!(free(alike, ["fixed", "ema-tier"]), Err(taken));
        }
    }
}
