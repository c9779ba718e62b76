//! The names that a part of the source mentions. The arguments of macro calls are read as tokens, so that their names
//! are included.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::{Attribute, ItemUse, UseTree, Visibility};

/// A path that the source mentions.
pub struct Mention {
    pub path: Vec<String>,
    pub how: How,
}

/// The way in which a path is mentioned, such as in a `use`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// In a `use`: the file itself needs the name.
    Import,
    /// In a `pub use`: the file makes the name available to other files.
    Export,
    /// As the name of a macro that is called.
    Macro,
    /// In any other place.
    Plain,
}

/// The names that a part of a crate's source mentions, collected so far.
#[derive(Default)]
pub struct Mentions {
    pub found: Vec<Mention>,
    /// The names that `use` lines bring into the module, with their paths. `None` stands for all names of the path
    /// (`*`).
    pub bound: Vec<(Option<String>, Vec<String>)>,
    /// Methods called as `self.name(` or `Self::name`.
    pub on_self: Vec<String>,
}

/// True if an item with these attributes is compiled for tests only.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|a| a.path().is_ident("cfg") && a.meta.require_list().is_ok_and(|l| says_test(l.tokens.clone())))
}

/// True if the condition of a `#[cfg]` is `test` or `all(.., test, ..)`.
fn says_test(condition: TokenStream) -> bool {
    let mut tokens = condition.into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(i)), None) => i == "test",
        (Some(TokenTree::Ident(i)), Some(TokenTree::Group(g))) if i == "all" => {
            g.stream().into_iter().any(|t| t.to_string() == "test")
        }
        _ => false,
    }
}

impl Mentions {
    pub fn of_use(&mut self, item: &ItemUse) {
        if item.leading_colon.is_some() {
            return;
        }
        let from = self.bound.len();
        flatten(&item.tree, &mut Vec::new(), &mut self.bound);
        let how = match item.vis {
            Visibility::Inherited => How::Import,
            _ => How::Export,
        };
        // A glob import alone mentions no name. The names that come through it are mentioned where they are used.
        let named = self.bound[from..].iter().filter(|(name, _)| name.is_some());
        self.found.extend(named.map(|(_, path)| Mention { path: path.clone(), how }));
    }

    pub fn of_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut i = 0;
        while i < tokens.len() {
            i = match &tokens[i] {
                TokenTree::Group(group) => {
                    self.of_tokens(group.stream());
                    i + 1
                }
                TokenTree::Punct(p) if p.as_char() == '#' && test_attribute(tokens.get(i + 1)) => {
                    after_item(&tokens, i + 2)
                }
                TokenTree::Ident(word) if word == "use" => self.of_inner_use(&tokens, i),
                TokenTree::Ident(_) => self.of_path(&tokens, i),
                _ => i + 1,
            };
        }
    }

    /// Adds a `use` in the body of a function, as if it held for the whole module. Returns the index of the token after
    /// the `use`.
    fn of_inner_use(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let Some(end) = (at..tokens.len()).find(|&i| is_punct(tokens.get(i), ';')) else { return at + 1 };
        if let Ok(item) = syn::parse2(tokens[at..=end].iter().cloned().collect()) {
            self.of_use(&item);
        }
        end + 1
    }

    fn of_path(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let mut path = vec![tokens[at].to_string()];
        let mut end = at + 1;
        while let (true, Some(TokenTree::Ident(next))) = (is_colons(tokens, end), tokens.get(end + 2)) {
            path.push(next.to_string());
            end += 3;
        }
        let before = at.checked_sub(1).and_then(|i| tokens.get(i));
        let field = is_punct(before, '.') && !(at > 1 && is_punct(tokens.get(at - 2), '.'));
        let called = matches!(tokens.get(end), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis);
        if field {
            let on_self = at > 1 && matches!(&tokens[at - 2], TokenTree::Ident(i) if i == "self");
            let alone = at < 3 || !is_punct(tokens.get(at - 3), '.');
            if on_self && alone && (called || is_colons(tokens, end)) {
                self.on_self.push(path[0].clone());
            }
            return end;
        }
        if path[0] == "Self" {
            self.on_self.extend(path.get(1).cloned());
            return end;
        }
        let rooted = is_punct(before, ':') && at > 1 && is_colons(tokens, at - 2);
        let labelled = path.len() == 1 && is_punct(tokens.get(end), ':') && !is_colons(tokens, end);
        if rooted || labelled {
            return end;
        }
        let bang = is_punct(tokens.get(end), '!') && !is_punct(tokens.get(end + 1), '=');
        self.found.push(Mention { path, how: if bang { How::Macro } else { How::Plain } });
        end
    }
}

fn is_punct(token: Option<&TokenTree>, c: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == c)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':' && p.spacing() == Spacing::Joint)
        && is_punct(tokens.get(at + 1), ':')
}

fn test_attribute(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else { return false };
    let mut tokens = group.stream().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(i)), Some(TokenTree::Group(g))) => i == "cfg" && says_test(g.stream()),
        _ => false,
    }
}

/// Index of the first token after the item that begins at token `from`.
fn after_item(tokens: &[TokenTree], from: usize) -> usize {
    let ends = |t: &TokenTree| match t {
        TokenTree::Group(g) => g.delimiter() == Delimiter::Brace,
        other => is_punct(Some(other), ';') || is_punct(Some(other), ','),
    };
    (from..tokens.len()).find(|&i| ends(&tokens[i])).map_or(tokens.len(), |i| i + 1)
}

/// Adds the names and paths of a `use` tree to `bound`. `path` is the path before the tree.
fn flatten(tree: &UseTree, path: &mut Vec<String>, bound: &mut Vec<(Option<String>, Vec<String>)>) {
    let with = |path: &[String], last: &dyn ToString| [path, &[last.to_string()]].concat();
    match tree {
        UseTree::Path(p) => {
            path.push(p.ident.to_string());
            flatten(&p.tree, path, bound);
            path.pop();
        }
        // `use a::b::{self}` means `use a::b`.
        UseTree::Name(n) if n.ident == "self" => bound.push((path.last().cloned(), path.clone())),
        UseTree::Name(n) => bound.push((Some(n.ident.to_string()), with(path, &n.ident))),
        UseTree::Rename(r) if r.ident == "self" => bound.push((Some(r.rename.to_string()), path.clone())),
        UseTree::Rename(r) => bound.push((Some(r.rename.to_string()), with(path, &r.ident))),
        UseTree::Glob(_) => bound.push((None, path.clone())),
        UseTree::Group(g) => g.items.iter().for_each(|t| flatten(t, path, bound)),
    }
}
