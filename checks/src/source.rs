//! One Rust file, parsed once into the plain facts that the checkers ask about: functions with
//! their lengths, module declarations, a flat list of tokens, imports, and which lines are tests.

use proc_macro2::{TokenStream, TokenTree};
use std::ops::RangeInclusive;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A function or method with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// `Type::name` for methods, `name` for free functions.
    pub name: String,
    /// The line of its signature.
    pub line: usize,
    /// Lines from the signature to the closing brace.
    pub lines: usize,
}

/// A `mod name;` whose contents lie in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleDeclaration {
    /// The inline modules around it.
    pub inside: Vec<String>,
    /// Its name.
    pub name: String,
    /// The value of `#[path = "…"]`.
    pub path: Option<String>,
    /// Whether it, or a module around it, is compiled for tests only.
    pub test_only: bool,
}

/// An identifier, a punctuation character, a bracket, or (as `""`) a literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token as written; empty for literals, so that no rule reads into strings.
    pub text: String,
    /// Its line.
    pub line: usize,
}

/// A name brought in by `use`, written out in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// For example `std::thread::Builder`; a glob ends in `*`.
    pub path: String,
    /// Its line.
    pub line: usize,
}

/// The facts of one file.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Every function with a body, macros' insides excepted.
    pub functions: Vec<Function>,
    /// Every module declaration without a body.
    pub modules: Vec<ModuleDeclaration>,
    /// Every token, insides of macros included.
    pub tokens: Vec<Token>,
    /// Every import.
    pub imports: Vec<Import>,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl Source {
    /// Parses `text`. Errors: the parser's message, with its line.
    pub fn parse(text: &str) -> Result<Source, String> {
        let describe = |line: usize, error: String| format!("does not parse at line {line}: {error}");
        let file =
            syn::parse_file(text).map_err(|error| describe(error.span().start().line, error.to_string()))?;
        let stream: TokenStream =
            text.parse().map_err(|error: proc_macro2::LexError| describe(0, error.to_string()))?;
        let mut source = Source::default();
        flatten(stream, &mut source.tokens);
        let mut visitor = Visitor { source: &mut source, inside: Vec::new(), owner: None, test_depth: 0 };
        visitor.visit_file(&file);
        Ok(source)
    }

    /// Whether `line` lies in an item that is compiled for tests only.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// The lines on which `wanted` occurs as consecutive tokens.
    pub fn lines_of<'a>(&'a self, wanted: &'a [&'a str]) -> impl Iterator<Item = usize> + 'a {
        self.tokens
            .windows(wanted.len())
            .filter(move |window| window.iter().zip(wanted).all(|(token, want)| token.text == *want))
            .map(|window| window[0].line)
    }
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                    proc_macro2::Delimiter::Brace => ("{", "}"),
                    proc_macro2::Delimiter::Bracket => ("[", "]"),
                    proc_macro2::Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.to_string(), line });
                flatten(group.stream(), tokens);
                tokens.push(Token { text: close.to_string(), line: group.span_close().start().line });
            }
            TokenTree::Ident(ident) => tokens.push(Token { text: ident.to_string(), line }),
            TokenTree::Punct(punct) => tokens.push(Token { text: punct.as_char().to_string(), line }),
            TokenTree::Literal(_) => tokens.push(Token { text: String::new(), line }),
        }
    }
}

struct Visitor<'a> {
    source: &'a mut Source,
    inside: Vec<String>,
    owner: Option<String>,
    test_depth: usize,
}

impl Visitor<'_> {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.fn_token.span.start().line;
        let last = block.brace_token.span.close().end().line;
        let name = match &self.owner {
            Some(owner) => format!("{owner}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        self.source.functions.push(Function { name, line, lines: last + 1 - line });
    }

    /// Runs `visit` on an item, noting its lines when `attributes` make it part of the tests only.
    fn within(
        &mut self,
        attributes: &[syn::Attribute],
        span: proc_macro2::Span,
        visit: impl FnOnce(&mut Self),
    ) {
        let test_only = attributes.iter().any(is_test_attribute);
        if test_only {
            self.source.test_lines.push(span.start().line..=span.end().line);
            self.test_depth += 1;
        }
        visit(self);
        if test_only {
            self.test_depth -= 1;
        }
    }

    fn with_owner(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = before;
    }

    fn import(&mut self, tree: &syn::UseTree, prefix: &str) {
        let mut push = |name: String, span: proc_macro2::Span| {
            let path = if prefix.is_empty() { name } else { format!("{prefix}::{name}") };
            self.source.imports.push(Import { path, line: span.start().line });
        };
        match tree {
            syn::UseTree::Path(path) => {
                let name = path.ident.to_string();
                let prefix = if prefix.is_empty() { name } else { format!("{prefix}::{name}") };
                self.import(&path.tree, &prefix);
            }
            syn::UseTree::Name(name) if name.ident == "self" => push(String::new(), name.ident.span()),
            syn::UseTree::Name(name) => push(name.ident.to_string(), name.ident.span()),
            syn::UseTree::Rename(rename) => push(rename.ident.to_string(), rename.ident.span()),
            syn::UseTree::Glob(glob) => push("*".to_string(), glob.star_token.span),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.within(attributes(item), item.span(), |visitor| visit::visit_item(visitor, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(&item.attrs, item.span(), |visitor| {
            visitor.function(&item.sig, &item.block);
            visitor.with_owner(None, |visitor| visit::visit_impl_item_fn(visitor, item));
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.within(&item.attrs, item.span(), |visitor| {
            if let Some(block) = &item.default {
                visitor.function(&item.sig, block);
            }
            visitor.with_owner(None, |visitor| visit::visit_trait_item_fn(visitor, item));
        });
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        self.with_owner(None, |visitor| visit::visit_item_fn(visitor, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        let owner = match (&item.trait_, owner) {
            (Some((path, _)), Some(owner)) => {
                path.segments.last().map(|segment| format!("{owner}::{}", segment.ident))
            }
            (_, owner) => owner,
        };
        self.with_owner(owner, |visitor| visit::visit_item_impl(visitor, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.with_owner(Some(item.ident.to_string()), |visitor| visit::visit_item_trait(visitor, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_none() {
            self.source.modules.push(ModuleDeclaration {
                inside: self.inside.clone(),
                name: item.ident.to_string(),
                path: item.attrs.iter().find_map(path_attribute),
                test_only: self.test_depth > 0,
            });
            return;
        }
        self.inside.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, "");
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let condition = attribute.path().is_ident("cfg").then(|| attribute.parse_args::<syn::Meta>().ok());
    condition.flatten().is_some_and(|condition| holds_in_tests_only(&condition))
}

/// Whether a `cfg` condition can hold in test builds only.
fn holds_in_tests_only(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => {
            let parts = inner_metas(list);
            if list.path.is_ident("all") {
                parts.iter().any(holds_in_tests_only)
            } else {
                list.path.is_ident("any") && !parts.is_empty() && parts.iter().all(holds_in_tests_only)
            }
        }
        syn::Meta::NameValue(_) => false,
    }
}

fn inner_metas(list: &syn::MetaList) -> Vec<syn::Meta> {
    let parser = Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
    parser.parse2(list.tokens.clone()).map(|parts| parts.into_iter().collect()).unwrap_or_default()
}

/// The value of `#[path = "…"]`, also inside `#[cfg_attr(…)]`.
fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    path_value(&attribute.meta)
}

fn path_value(meta: &syn::Meta) -> Option<String> {
    match meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        syn::Meta::List(list) if list.path.is_ident("cfg_attr") => {
            inner_metas(list).iter().skip(1).find_map(path_value)
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "source_test.rs"]
mod source_test;
