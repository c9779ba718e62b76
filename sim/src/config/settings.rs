//! The macro that makes a struct of settings: each setting is written once, with its default and its check.

/// Makes a struct of settings from rows `key: type = default, check;`. The check may be left out. A row's attributes
/// and doc comment go to the struct's field. The struct gets `Default`, and `check_each` applies every row's check.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $name:ident;
        $($(#[$about_key:meta])* $key:ident: $kind:ty = $default:expr $(, $check:expr)?;)*
    ) => {
        $(#[$about])*
        pub struct $name {
            $($(#[$about_key])* pub $key: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($key: $default,)* }
            }
        }

        impl $name {
            /// Checks the value of every setting of the struct by itself, in the order in which the settings are
            /// written.
            fn check_each(&self) -> Result<(), BadConfig> {
                $($($check(stringify!($key), &self.$key)?;)?)*
                Ok(())
            }
        }
    };
}

pub(super) use settings;
