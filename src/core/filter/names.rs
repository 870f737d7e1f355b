//! Names in an expression: checked at compile time, and collected so that nothing else of an entry is read.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, SourceInfo, operators,
};
use cel::parser::ParseErrors;
use cel::{Context, ExecutionError, Value};

use super::entry::Need;
use super::{FilterError, MAX_NESTING, VARIABLES};
use crate::core::spelling::nearest;

/// `namespace` is a reserved word of CEL and a key of every entry. The parser gets this name of the same length
/// instead, so that the columns of its messages stay true.
const NAMESPACE: &str = "namespace";
const HIDDEN: &str = "namespac_";

/// Loops inside loops: more than these on the lists of a large object would not end in any useful time.
const MAX_LOOPS: usize = 2;

/// Names of types, which an expression may use as values.
const TYPES: [&str; 14] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "duration",
    "timestamp",
    "optional_type",
    "optional",
    "google",
];

/// Functions, for the hint in the message alone.
const FUNCTIONS: [&str; 19] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "exists",
    "exists_one",
    "all",
    "filter",
    "map",
    "has",
    "string",
    "int",
    "double",
    "timestamp",
    "duration",
    "hasValue",
    "orValue",
    "value",
];

/// The text with every variable called `namespace` renamed.
pub(super) fn hide_reserved(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // The last two tokens that are no white space: after `.` and `.?`, `namespace` is a member and needs no help.
    let mut before = ("", "");
    while let Some(first) = rest.chars().next() {
        let length = token_length(rest);
        let token = &rest[..length];
        let is_field = before.1 == "." || before == (".", "?");
        out.push_str(if token == NAMESPACE && !is_field { HIDDEN } else { token });
        if !first.is_whitespace() {
            before = (before.1, token);
        }
        rest = &rest[length..];
    }
    out
}

/// Returns the length of the first token of a text: a string, a comment, a word, or one character.
fn token_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let word = bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    let quote_at = if word <= 2 && text[..word].bytes().all(|byte| b"rRbB".contains(&byte)) { word } else { 0 };
    match bytes.get(quote_at) {
        Some(quote @ (b'"' | b'\'')) => {
            let raw = text[..quote_at].contains(['r', 'R']);
            let triple = [*quote; 3];
            let end: &[u8] = if bytes[quote_at..].starts_with(&triple) { &triple } else { &triple[..1] };
            let mut at = quote_at + end.len();
            while at < bytes.len() && !bytes[at..].starts_with(end) {
                at += if bytes[at] == b'\\' && !raw { 2 } else { 1 };
            }
            let mut end = (at + end.len()).min(bytes.len());
            while !text.is_char_boundary(end) {
                end += 1;
            }
            end
        }
        Some(b'`') if quote_at == 0 => text[1..].find('`').map_or(text.len(), |end| end + 2),
        Some(b'/') if quote_at == 0 && bytes.get(1) == Some(&b'/') => text.find('\n').unwrap_or(text.len()),
        _ if word > 0 => word,
        _ => text.chars().next().map_or(0, char::len_utf8),
    }
}

/// Refuses what is nested deeper than a thread's stack should bear, before the parser sees it: brackets, and chains
/// such as `!!!!x`, `a.b.c.d`, `a ? b : c ? d : e` and `1+1+1`, all of which nest in the tree of the expression.
pub(super) fn check_nesting(text: &str) -> Result<(), FilterError> {
    // How long the chain is at each open bracket, and in all of them together.
    let mut chains = vec![0_usize];
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let length = token_length(&text[at..]);
        match &text[at..at + length] {
            "(" | "[" | "{" => {
                chains.push(1);
                depth += 1;
            }
            ")" | "]" | "}" if chains.len() > 1 => {
                depth -= chains.pop().unwrap_or_default();
                // What is called or indexed can be called or indexed again.
                if let Some(chain) = chains.last_mut() {
                    *chain += 1;
                    depth += 1;
                }
            }
            "." | "!" | "-" | "+" | "*" | "%" | "/" | "?" => {
                if let Some(chain) = chains.last_mut() {
                    *chain += 1;
                    depth += 1;
                }
            }
            // The parser keeps these in balance, and a comparison is no chain.
            "," | "&" | "|" => {
                if let Some(chain) = chains.last_mut() {
                    depth -= *chain;
                    *chain = 0;
                }
            }
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(error_at(
                text,
                at,
                "the expression is nested too deeply, or a chain in it is too long".to_owned(),
            ));
        }
        at += length;
    }
    Ok(())
}

/// The first thing that the parser did not understand.
pub(super) fn parse_error(text: &str, errors: &ParseErrors) -> FilterError {
    let error = errors.errors.first();
    let (line, column) = error.map_or((1, 1), |error| error.pos);
    let message = error.map_or("not a CEL expression", |error| error.msg.as_str());
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message).replace(HIDDEN, NAMESPACE);
    // What could have stood there instead is a list of every token of the grammar: no help to a reader.
    let message = message.split(" expecting {").next().unwrap_or_default().trim();
    let line = usize::try_from(line).unwrap_or(1).max(1);
    let column = usize::try_from(column).unwrap_or(1).max(1);
    let at_error: String = text.lines().nth(line - 1).unwrap_or_default().chars().skip(column - 1).collect();
    let hint = meant(&at_error).map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
    FilterError::Compile { line, column, message: format!("not a CEL expression: {message}{hint}") }
}

/// The operator of CEL for one of another language that a text begins with.
fn meant(text: &str) -> Option<&'static str> {
    let token = text.get(..token_length(text))?;
    match token.to_ascii_lowercase().as_str() {
        "=" => Some("=="),
        "and" => Some("&&"),
        "or" => Some("||"),
        "not" => Some("!"),
        _ => None,
    }
}

/// An error at a byte of the text.
fn error_at(text: &str, at: usize, message: String) -> FilterError {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    FilterError::Compile { line, column, message }
}

fn position(positions: &SourceInfo, id: u64) -> usize {
    positions.offset_for(id).map_or(0, |(start, _)| start as usize)
}

/// An error at a node of the tree.
pub(super) fn error_at_node(text: &str, positions: &SourceInfo, id: u64, message: String) -> FilterError {
    error_at(text, position(positions, id), message)
}

/// Returns the spelling of an operator of the tree.
pub(super) fn operator(function: &str) -> &str {
    match function {
        operators::INDEX | operators::OPT_INDEX => "[]",
        operators::OPT_SELECT | "_._" => ".",
        operators::IN => "in",
        other => other.trim_matches('_'),
    }
}

/// Checks every name of an expression, gives `namespace` its name back, lets `has(object.x)` bear an absent `object`,
/// and returns what the expression needs of an entry.
pub(super) fn resolve(expression: &mut IdedExpr, text: &str, positions: &SourceInfo) -> Result<Need, FilterError> {
    let mut resolver = Resolver {
        text,
        positions,
        need: Need::default(),
        bound: Vec::new(),
        functions: Context::with_env(super::ENV.clone()),
    };
    resolver.expression(expression, 0)?;
    Ok(resolver.need)
}

struct Resolver<'t> {
    text: &'t str,
    positions: &'t SourceInfo,
    need: Need,
    /// The variables of the loops around.
    bound: Vec<String>,
    functions: Context<'static, 'static>,
}

impl Resolver<'_> {
    fn error(&self, id: u64, message: String) -> FilterError {
        error_at_node(self.text, self.positions, id, message)
    }

    fn position(&self, id: u64) -> usize {
        position(self.positions, id)
    }

    fn expression(&mut self, expression: &mut IdedExpr, loops: usize) -> Result<(), FilterError> {
        self.rename(expression);
        if let Some(path) = self.path(expression, true)? {
            let presence = matches!(&expression.expr, Expr::Select(select) if select.test);
            self.need.at(&path).whole |= !presence;
            if presence {
                guard_presence(expression, &path[0]);
            }
            return Ok(());
        }
        let id = expression.id;
        match &mut expression.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => self.check_name(name, id)?,
            Expr::Select(select) => self.expression(&mut select.operand, loops)?,
            Expr::Call(call) => {
                if let Some(other) = compared_with_null(call)
                    && let Some(path) = self.path(other, false)?
                {
                    self.need.at(&path);
                    return Ok(());
                }
                self.check_function(call, id)?;
                for part in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
                    self.expression(part, loops)?;
                }
            }
            Expr::List(list) => {
                for element in &mut list.elements {
                    self.expression(element, loops)?;
                }
            }
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    self.entry(&mut entry.expr, loops)?;
                }
            }
            Expr::Struct(of) => {
                return Err(self.error(id, format!("there is no type {:?} to make here", of.type_name)));
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, id, loops)?,
        }
        Ok(())
    }

    fn entry(&mut self, entry: &mut EntryExpr, loops: usize) -> Result<(), FilterError> {
        match entry {
            EntryExpr::StructField(field) => self.expression(&mut field.value, loops),
            EntryExpr::MapEntry(entry) => {
                self.expression(&mut entry.key, loops)?;
                self.expression(&mut entry.value, loops)
            }
        }
    }

    fn comprehension(&mut self, of: &mut ComprehensionExpr, id: u64, loops: usize) -> Result<(), FilterError> {
        if loops == MAX_LOOPS {
            return Err(self.error(id, format!("more than {MAX_LOOPS} loops inside one another")));
        }
        self.expression(&mut of.iter_range, loops)?;
        self.expression(&mut of.accu_init, loops)?;
        let outside = self.bound.len();
        self.bound.extend([of.iter_var.clone(), of.accu_var.clone()]);
        self.bound.extend(of.iter_var2.clone());
        for part in [&mut of.loop_cond, &mut of.loop_step, &mut of.result] {
            self.expression(part, loops + 1)?;
        }
        self.bound.truncate(outside);
        Ok(())
    }

    fn rename(&self, expression: &mut IdedExpr) {
        if let Expr::Ident(name) = &mut expression.expr
            && name == HIDDEN
            && !self.bound.iter().any(|bound| bound == HIDDEN)
        {
            NAMESPACE.clone_into(name);
        }
    }

    /// The names that lead from a variable of the entry to this value, where that is all it is: `object.spec.x`,
    /// `object.metadata.labels["x"]`, `object.?spec` and, where `tests` are asked for, `has(object.spec)`.
    fn path(&self, expression: &mut IdedExpr, tests: bool) -> Result<Option<Vec<String>>, FilterError> {
        let mut names = Vec::new();
        let mut at = expression;
        loop {
            self.rename(at);
            let id = at.id;
            match &mut at.expr {
                Expr::Ident(name) => {
                    if self.bound.contains(name) || TYPES.contains(&name.as_str()) {
                        return Ok(None);
                    }
                    self.check_name(name, id)?;
                    names.push(name.trim_start_matches('.').to_owned());
                    names.reverse();
                    return Ok(Some(names));
                }
                Expr::Select(SelectExpr { test: true, .. }) if !(names.is_empty() && tests) => return Ok(None),
                Expr::Select(SelectExpr { operand, field, .. }) => {
                    names.push(field.clone());
                    at = operand;
                }
                Expr::Call(CallExpr { func_name, target: None, args })
                    if matches!(
                        func_name.as_str(),
                        operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT
                    ) =>
                {
                    let [operand, field] = args.as_mut_slice() else { return Ok(None) };
                    let Expr::Literal(LiteralValue::String(field)) = &field.expr else { return Ok(None) };
                    names.push(field.inner().to_owned());
                    at = operand;
                }
                Expr::Unspecified
                | Expr::Call(_)
                | Expr::Comprehension(_)
                | Expr::List(_)
                | Expr::Literal(_)
                | Expr::Map(_)
                | Expr::Struct(_) => return Ok(None),
            }
        }
    }

    fn check_name(&self, name: &str, id: u64) -> Result<(), FilterError> {
        let name = name.trim_start_matches('.');
        if self.bound.iter().any(|bound| bound == name) || TYPES.contains(&name) || VARIABLES.contains(&name) {
            return Ok(());
        }
        let hint = match nearest(name, VARIABLES) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("it has {}; a text stands in quotes, as in '{name}'", VARIABLES.join(", ")),
        };
        Err(self.error(id, format!("an entry has no {name:?}; {hint}")))
    }

    /// Asks the interpreter for the function with nothing to apply it to: only where there is no such function at all
    /// does it say so.
    fn check_function(&self, call: &CallExpr, id: u64) -> Result<(), FilterError> {
        let name = call.func_name.as_str();
        let qualified = call
            .target
            .as_deref()
            .is_some_and(|target| matches!(&target.expr, Expr::Ident(name) if name == "optional"));
        if name.contains('_') && name != "exists_one" || name.starts_with(['@', '!', '-']) || qualified {
            return Ok(());
        }
        let target = call
            .target
            .as_ref()
            .map(|_| Box::new(IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Boolean(true.into())) }));
        let probe =
            IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target, args: Vec::new() }) };
        if let Err(ExecutionError::UndeclaredReference(_)) = Value::resolve_val(&probe, &self.functions) {
            let hint = nearest(name, FUNCTIONS)
                .filter(|near| *near != name)
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            let at = self.position(id);
            // A member call is known by its bracket: the name is before it.
            let before = self.text.get(..at).filter(|before| before.ends_with(name));
            let at = before.map_or(at, |before| before.len() - name.len());
            return Err(error_at(self.text, at, format!("there is no function {name:?} with these arguments{hint}")));
        }
        Ok(())
    }
}

/// Returns the operand of a call that compares it with `null`: only its presence is needed.
fn compared_with_null(call: &mut CallExpr) -> Option<&mut IdedExpr> {
    if !matches!(call.func_name.as_str(), operators::EQUALS | operators::NOT_EQUALS) {
        return None;
    }
    let [left, right] = call.args.as_mut_slice() else { return None };
    let is_null = |side: &IdedExpr| side.expr == Expr::Literal(LiteralValue::Null);
    if is_null(right) { Some(left) } else { is_null(left).then_some(right) }
}

/// `has(object.x)` where the entry has no `object` is false, not an error.
fn guard_presence(expression: &mut IdedExpr, variable: &str) {
    let id = expression.id;
    let node = |expr| IdedExpr { id, expr };
    let call = |func_name: &str, args| Expr::Call(CallExpr { func_name: func_name.to_owned(), target: None, args });
    let absent =
        call(operators::EQUALS, vec![node(Expr::Ident(variable.to_owned())), node(Expr::Literal(LiteralValue::Null))]);
    let test = std::mem::take(expression);
    let no = node(Expr::Literal(LiteralValue::Boolean(false.into())));
    *expression = node(call(operators::CONDITIONAL, vec![node(absent), no, test]));
}
