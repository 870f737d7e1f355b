//! The modules of `src`, and which of them uses which: read out of the code, tests left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item};

/// The path of a module below the crate, such as `["journal", "reader"]`; empty for `lib.rs`.
pub type Module = Vec<String>;

/// All modules that have a file.
pub struct House {
    /// Their files, from the top of the repository.
    pub files: BTreeMap<Module, PathBuf>,
    /// What each uses of the others.
    pub uses: BTreeMap<Module, BTreeSet<Module>>,
    /// The lines of each, tests of the same file included.
    pub lines: BTreeMap<Module, usize>,
    /// The tokens of each, tests left out.
    pub code: BTreeMap<Module, TokenStream>,
}

impl House {
    /// Reads the repository in this directory.
    pub fn read(root: &Path) -> Self {
        let mut house =
            Self { files: BTreeMap::new(), uses: BTreeMap::new(), lines: BTreeMap::new(), code: BTreeMap::new() };
        house.take(root, &root.join("src/lib.rs"), Vec::new());
        for module in house.files.keys() {
            let mut found = BTreeSet::new();
            house.paths(module, house.code[module].clone(), &mut found);
            found.remove(module);
            house.uses.insert(module.clone(), found);
        }
        house
    }

    fn take(&mut self, root: &Path, file: &Path, module: Module) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut code = TokenStream::new();
        let below = if module.is_empty() { root.join("src") } else { file.with_extension("") };
        for item in parsed.items.into_iter().filter(|item| !is_test(attributes(item))) {
            if let Item::Mod(declared) = &item
                && declared.content.is_none()
                // What has a path is a file that stands elsewhere in the house, for a build without a feature.
                && !declared.attrs.iter().any(|attribute| attribute.path().is_ident("path"))
            {
                let mut child = module.clone();
                child.push(declared.ident.to_string());
                self.take(root, &below.join(format!("{}.rs", declared.ident)), child);
            }
            item.to_tokens(&mut code);
        }
        self.lines.insert(module.clone(), text.lines().count());
        self.files.insert(module.clone(), file.strip_prefix(root).unwrap_or(file).to_owned());
        self.code.insert(module, code);
    }

    /// The modules that the paths in these tokens lead to.
    fn paths(&self, here: &Module, tokens: TokenStream, found: &mut BTreeSet<Module>) {
        let mut tokens = tokens.into_iter().peekable();
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        loop {
            let token = tokens.next();
            match &token {
                Some(TokenTree::Ident(ident)) if path.is_empty() || colons == 2 => path.push(ident.to_string()),
                Some(TokenTree::Punct(punct)) if punct.as_char() == ':' && !path.is_empty() && colons < 2 => {
                    colons += 1;
                    continue;
                }
                // `use crate::{a, b::c}`: each of them goes on where this path ends.
                Some(TokenTree::Group(group)) if colons == 2 => {
                    for branch in branches(group.stream()) {
                        let whole = path.iter().flat_map(|name| name_of(name)).chain(branch).collect();
                        self.paths(here, whole, found);
                    }
                    path.clear();
                }
                Some(TokenTree::Ident(ident)) => {
                    self.note(here, &path, found);
                    path = vec![ident.to_string()];
                }
                _ => {
                    self.note(here, &path, found);
                    path.clear();
                    if let Some(TokenTree::Group(group)) = &token {
                        self.paths(here, group.stream(), found);
                    }
                }
            }
            colons = 0;
            if token.is_none() {
                return;
            }
        }
    }

    /// Notes the module with the longest name that this path begins with.
    fn note(&self, here: &Module, path: &[String], found: &mut BTreeSet<Module>) {
        let Some(first) = path.first() else { return };
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => here.clone(),
            "super" => here[..here.len().saturating_sub(1)].to_vec(),
            name => {
                let mut child = here.clone();
                child.push(name.to_owned());
                if path.len() < 2 || !self.files.contains_key(&child) {
                    return;
                }
                child
            }
        };
        for name in &path[1..] {
            if name == "super" {
                at.pop();
                continue;
            }
            at.push(name.clone());
            if !self.files.contains_key(&at) {
                at.pop();
                break;
            }
        }
        if !at.is_empty() {
            found.insert(at);
        }
    }

    /// The rooms, which are the modules at the top, and which of them uses which.
    pub fn rooms(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, used) in &self.uses {
            let Some(room) = module.first() else { continue };
            let others = used.iter().filter_map(|used| used.first()).filter(|other| *other != room);
            rooms.entry(room.clone()).or_default().extend(others.cloned());
        }
        rooms
    }

    /// The lines of a room.
    pub fn lines_of(&self, room: &str) -> usize {
        self.lines.iter().filter(|(module, _)| module.first().is_some_and(|first| first == room)).map(|(_, n)| n).sum()
    }

    /// Modules that use each other in a circle. That a part uses the module that it is a part of makes none.
    pub fn circles(&self) -> Vec<Vec<Module>> {
        let arrows = |module: &Module| {
            let own = module.clone();
            self.uses[module].iter().filter(move |used| !own.starts_with(used)).cloned().collect::<Vec<_>>()
        };
        circles(self.files.keys(), arrows)
    }

    /// Parts of a room, which are the modules below it, that use each other in a circle.
    pub fn circles_of_parts(&self, room: &str) -> Vec<Vec<String>> {
        let part = |module: &Module| module.get(1).filter(|_| module[0] == room).cloned();
        let mut parts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, used) in &self.uses {
            let Some(own) = part(module) else { continue };
            let others = used.iter().filter_map(part).filter(|other| *other != own);
            parts.entry(own.clone()).or_default().extend(others);
        }
        circles(parts.keys(), |part| parts[part].iter().cloned().collect())
    }

    /// Rooms that use each other in a circle.
    pub fn circles_of_rooms(&self) -> Vec<Vec<String>> {
        let rooms = self.rooms();
        circles(rooms.keys(), |room| rooms[room].iter().cloned().collect())
    }
}

/// What reaches itself, in groups that reach each other.
fn circles<'n, N: Ord + Clone + 'n>(nodes: impl Iterator<Item = &'n N>, arrows: impl Fn(&N) -> Vec<N>) -> Vec<Vec<N>> {
    let reached: BTreeMap<N, BTreeSet<N>> = nodes
        .map(|node| {
            let (mut reached, mut next) = (BTreeSet::new(), arrows(node));
            while let Some(at) = next.pop() {
                if reached.insert(at.clone()) {
                    next.extend(arrows(&at));
                }
            }
            (node.clone(), reached)
        })
        .collect();
    let mut circles: BTreeSet<Vec<N>> = BTreeSet::new();
    for (node, from) in &reached {
        if from.contains(node) {
            circles.insert(
                from.iter().filter(|other| reached.get(other).is_some_and(|r| r.contains(node))).cloned().collect(),
            );
        }
    }
    circles.into_iter().collect()
}

/// A name and the colons behind it, as tokens.
fn name_of(name: &str) -> TokenStream {
    format!("{name}::").parse().unwrap_or_default()
}

/// What stands between the commas.
fn branches(tokens: TokenStream) -> Vec<TokenStream> {
    let mut branches = vec![Vec::new()];
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => branches.push(Vec::new()),
            TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {
                if let Some(branch) = branches.last_mut() {
                    branch.push(token);
                }
            }
        }
    }
    branches.into_iter().map(TokenStream::from_iter).collect()
}

/// Whether this is compiled for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "another crate's list; what is not in it defines nothing that is for tests"
)]
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
