//! The types of an expression, as far as they are known before there is an entry: what cannot have an answer for any
//! entry is refused when it is compiled. What is inside of an object has any type.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue};
use cel::common::ast::{SourceInfo, operators};
use cel::common::value::Val;
use cel::{Context, ExecutionError, Value};

use super::names::{error_at_node, operator};
use super::{ACTOR, FilterError};
use crate::core::spelling::nearest;

/// A value of a type, as an expression without variables: the interpreter itself says what goes with it.
#[derive(Clone)]
struct Sample {
    expression: IdedExpr,
    name: String,
    /// True for the value itself, which is the same for each entry.
    is_fixed: bool,
}

impl Sample {
    fn fixed(self) -> Self {
        Self { is_fixed: true, ..self }
    }
}

/// Known type of a value; none if it may have any type.
type Known = Option<Sample>;

/// The members that those keys of an entry have which are objects.
const MEMBERS: [(&str, &[&str]); 4] = [
    ("cluster", &["name", "uid"]),
    ("change", &["areas", "patch", "managers"]),
    ("gap", &["why", "from", "to", "since"]),
    (ACTOR, &["user", "impersonated_by", "agent", "addresses", "verb", "subresource", "certainty", "audit_ids"]),
];

/// Refuses an expression whose parts do not go together, or whose answer is no bool. Gives back the texts that keys of an
/// entry are compared with.
pub(super) fn check(
    expression: &IdedExpr,
    text: &str,
    positions: &SourceInfo,
) -> Result<Vec<(String, String)>, FilterError> {
    let functions = Context::with_env(super::ENV.clone());
    let mut checker = Checker { text, positions, functions, bound: Vec::new(), compared: Vec::new() };
    match checker.of(expression)? {
        Some(answer) if answer.name != "bool" => {
            Err(checker.error(expression.id, format!("the answer is of type {}, not bool", answer.name)))
        }
        _ => Ok(checker.compared),
    }
}

/// The function that takes a regular expression, as its last argument.
const MATCHES: &str = "matches";

/// Key of the name of a manager, in `change.managers`.
const MANAGER: &str = "manager";

/// Members of `actor` that name a user.
const USERS: [&str; 2] = ["user", "impersonated_by"];

struct Checker<'t> {
    text: &'t str,
    positions: &'t SourceInfo,
    functions: Context<'static, 'static>,
    /// The variables of the loops around.
    bound: Vec<(String, Known)>,
    /// Keys of an entry, each with a text that it is compared with.
    compared: Vec<(String, String)>,
}

impl Checker<'_> {
    fn error(&self, id: u64, message: String) -> FilterError {
        error_at_node(self.text, self.positions, id, message)
    }

    fn of(&mut self, expression: &IdedExpr) -> Result<Known, FilterError> {
        let id = expression.id;
        match &expression.expr {
            Expr::Literal(_) => Ok(self.sample(expression.expr.clone()).map(Sample::fixed)),
            Expr::Ident(name) => Ok(self.variable(name.trim_start_matches('.'))),
            Expr::Select(select) => {
                let member = if let Expr::Ident(name) = &select.operand.expr
                    && !self.bound.iter().any(|(bound, _)| bound == name)
                {
                    self.member(name.trim_start_matches('.'), &select.field, id)?
                } else if let Some(operand) = self.of(&select.operand)? {
                    return Err(self.error(id, format!("a value of type {} has no members", operand.name)));
                } else {
                    None
                };
                Ok(if select.test { self.bool() } else { member })
            }
            Expr::Call(call) => self.call(call, id),
            Expr::List(list) => {
                let elements: Vec<Known> =
                    list.elements.iter().map(|element| self.of(element)).collect::<Result<_, _>>()?;
                let is_fixed = elements.iter().flatten().all(|sample| sample.is_fixed);
                let elements: Option<Vec<IdedExpr>> =
                    elements.into_iter().map(|element| element.map(|sample| sample.expression)).collect();
                let list = elements.and_then(|elements| self.sample(Expr::List(ListExpr::new(elements))));
                Ok(list.map(|list| Sample { is_fixed, ..list }))
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.of(&entry.key)?;
                        self.of(&entry.value)?;
                    }
                }
                Ok(None)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, id),
            Expr::Struct(_) | Expr::Unspecified => Ok(None),
        }
    }

    fn call(&mut self, call: &CallExpr, id: u64) -> Result<Known, FilterError> {
        let name = call.func_name.as_str();
        if matches!(name, operators::EQUALS | operators::NOT_EQUALS | operators::IN) {
            self.remember(&call.args);
        }
        let target = call.target.as_deref().map(|target| self.of(target)).transpose()?;
        let args: Vec<Known> = call.args.iter().map(|arg| self.of(arg)).collect::<Result<_, _>>()?;
        match (name, args.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, _) => {
                for (arg, known) in call.args.iter().zip(&args) {
                    self.want_bool(known.as_ref(), arg.id, name)?;
                }
                return Ok(self.bool());
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                self.want_bool(condition.as_ref(), call.args[0].id, "?")?;
                let alike = matches!((yes, no), (Some(yes), Some(no)) if yes.name == no.name);
                return Ok(yes.clone().filter(|_| alike).map(|yes| Sample { is_fixed: false, ..yes }));
            }
            (operators::EQUALS | operators::NOT_EQUALS, [Some(left), Some(right)]) if !comparable(left, right) => {
                return Err(self.mismatch(name, &[left, right], id));
            }
            (operators::IN, [Some(left), Some(list)]) => {
                let Some(elements) = self.elements(list) else { return Err(self.mismatch(name, &[left, list], id)) };
                if !elements.is_empty() && !elements.iter().any(|element| comparable(left, element)) {
                    return Err(self.mismatch(name, &[left, &elements[0]], id));
                }
                return Ok(self.bool());
            }
            (operators::EQUALS | operators::NOT_EQUALS | operators::IN | operators::NOT_STRICTLY_FALSE, _) => {
                return Ok(self.bool());
            }
            (operators::OPT_SELECT | operators::OPT_INDEX, _) => return Ok(None),
            (MATCHES, [.., Some(pattern)]) if pattern.is_fixed && !self.is_pattern(pattern) => {
                let at = call.args.last().map_or(id, |pattern| pattern.id);
                return Err(self.error(at, "this is no regular expression, or one that is too large".to_owned()));
            }
            _ => {}
        }
        // Whatever is left is asked of the interpreter, with values of these types.
        if matches!(target, Some(None)) || args.iter().any(Option::is_none) {
            return Ok(None);
        }
        let samples: Vec<Sample> = target.flatten().into_iter().chain(args.into_iter().flatten()).collect();
        let is_fixed = samples.iter().all(|sample| sample.is_fixed);
        let mut values = samples.iter().map(|sample| sample.expression.clone());
        let target = call.target.as_ref().and_then(|_| values.next()).map(Box::new);
        let probe = node(Expr::Call(CallExpr { func_name: name.to_owned(), target, args: values.collect() }));
        match Value::resolve_val(&probe, &self.functions).map(|value| type_name(value.as_ref())) {
            Ok(name) => Ok(Some(Sample { expression: probe, name, is_fixed })),
            Err(
                ExecutionError::NoSuchOverload(_)
                | ExecutionError::InvalidArgumentCount { .. }
                | ExecutionError::MissingArgumentOrTarget
                | ExecutionError::NotSupportedAsMethod { .. }
                | ExecutionError::UnexpectedType { .. }
                | ExecutionError::UnsupportedBinaryOperator(..)
                | ExecutionError::UnsupportedIndex(..)
                | ExecutionError::UnsupportedTargetType { .. }
                | ExecutionError::ValuesNotComparable(..),
            ) => Err(self.mismatch(name, &samples.iter().collect::<Vec<_>>(), id)),
            Err(_) if is_fixed => Err(self.error(id, format!("{:?} has no answer for these values", operator(name)))),
            // A mistake in the value, which is not that of an entry.
            Err(_) => Ok(None),
        }
    }

    /// Reports whether a text is a regular expression, as the interpreter reads it.
    fn is_pattern(&self, pattern: &Sample) -> bool {
        let args = vec![node(text("")), pattern.expression.clone()];
        let probe = node(Expr::Call(CallExpr { func_name: MATCHES.to_owned(), target: None, args }));
        let answer = Value::resolve_val(&probe, &self.functions);
        !matches!(answer, Err(ExecutionError::FunctionError { .. }))
    }

    fn remember(&mut self, args: &[IdedExpr]) {
        let [left, right] = args else { return };
        for (key, value) in [(left, right), (right, left)] {
            let name = if let Expr::Ident(name) = &key.expr
                && !self.bound.iter().any(|(bound, _)| bound == name)
            {
                name.trim_start_matches('.')
            } else if let Expr::Select(select) = &key.expr
                && select.field == MANAGER
            {
                // Of a writer: `change.managers.exists(m, m.manager == …)`.
                MANAGER
            } else if let Expr::Select(select) = &key.expr
                && let Expr::Ident(of) = &select.operand.expr
                && of.trim_start_matches('.') == ACTOR
                && USERS.contains(&select.field.as_str())
            {
                USERS[0]
            } else {
                continue;
            };
            let values =
                if let Expr::List(list) = &value.expr { &list.elements[..] } else { std::slice::from_ref(value) };
            for value in values {
                if let Expr::Literal(LiteralValue::String(text)) = &value.expr {
                    self.compared.push((name.to_owned(), text.inner().to_owned()));
                }
            }
        }
    }

    fn comprehension(&mut self, of: &ComprehensionExpr, id: u64) -> Result<Known, FilterError> {
        let mut element = None;
        if let Some(range) = self.of(&of.iter_range)? {
            let Some(elements) = self.elements(&range) else {
                return Err(self.error(id, format!("a value of type {} has no elements", range.name)));
            };
            let alike = elements.windows(2).all(|pair| pair[0].name == pair[1].name);
            element = elements.into_iter().next().filter(|_| alike && of.iter_var2.is_none());
        }
        let found = self.of(&of.accu_init)?.filter(|found| found.name != "list");
        let found = found.map(|found| Sample { is_fixed: false, ..found });
        let outside = self.bound.len();
        self.bound.push((of.iter_var.clone(), element));
        self.bound.extend(of.iter_var2.clone().map(|name| (name, None)));
        self.bound.push((of.accu_var.clone(), found));
        self.of(&of.loop_cond)?;
        self.of(&of.loop_step)?;
        let result = self.of(&of.result);
        self.bound.truncate(outside);
        result
    }

    fn variable(&self, name: &str) -> Known {
        if let Some((_, known)) = self.bound.iter().rev().find(|(bound, _)| bound == name) {
            return known.clone();
        }
        match name {
            "v" | "seq" => self.sample(Expr::Literal(LiteralValue::Int(1.into()))),
            "time" | "happened" => self.sample(text("2026-11-21T00:00:00Z")),
            "epoch" | "id" | "type" | "evidence" | "apiVersion" | "kind" | "resource" | "namespace" | "name"
            | "uid" | "resourceVersion" => self.sample(text("1")),
            "redacted" | "by" | "happenedBetween" => self.texts(),
            _ => None,
        }
    }

    /// A member of a variable.
    fn member(&mut self, variable: &str, member: &str, id: u64) -> Result<Known, FilterError> {
        let Some((_, members)) = MEMBERS.iter().find(|(name, _)| *name == variable) else {
            return match self.variable(variable) {
                Some(known) => Err(self.error(id, format!("a value of type {} has no members", known.name))),
                None => Ok(None),
            };
        };
        if !members.contains(&member) {
            let hint = nearest(member, members.iter().copied())
                .map_or_else(|| format!("it has {}", members.join(", ")), |near| format!("did you mean {near:?}?"));
            return Err(self.error(id, format!("{variable} has no {member:?}; {hint}")));
        }
        Ok(match member {
            "areas" | "addresses" | "audit_ids" => self.texts(),
            "name" | "uid" | "why" | "from" | "to" | "since" => self.sample(text("1")),
            _ if variable == ACTOR => self.sample(text("1")),
            _ => None,
        })
    }

    fn sample(&self, expr: Expr) -> Known {
        let expression = node(expr);
        let name = type_name(Value::resolve_val(&expression, &self.functions).ok()?.as_ref());
        Some(Sample { expression, name, is_fixed: false })
    }

    fn bool(&self) -> Known {
        self.sample(Expr::Literal(LiteralValue::Boolean(true.into())))
    }

    fn texts(&self) -> Known {
        self.sample(Expr::List(ListExpr::new(vec![node(text("1"))])))
    }

    /// Returns the elements of a list; none if it is no list.
    fn elements(&self, list: &Sample) -> Option<Vec<Sample>> {
        if let Expr::List(list) = &list.expression.expr {
            return list.elements.iter().map(|element| self.sample(element.expr.clone())).collect();
        }
        // Of what a function gives, no more is known than what it is.
        matches!(list.name.as_str(), "list" | "map").then(Vec::new)
    }

    fn want_bool(&self, known: Option<&Sample>, id: u64, operator_name: &str) -> Result<(), FilterError> {
        match known {
            Some(known) if known.name != "bool" => Err(self
                .error(id, format!("{:?} needs a bool, not a value of type {}", operator(operator_name), known.name))),
            _ => Ok(()),
        }
    }

    fn mismatch(&self, name: &str, samples: &[&Sample], id: u64) -> FilterError {
        let types: Vec<&str> = samples.iter().map(|sample| sample.name.as_str()).collect();
        self.error(id, format!("{:?} does not go with values of type {}", operator(name), types.join(" and ")))
    }
}

/// Reports whether two values can be equal. Every number can be equal to every other, and a missing key is null.
fn comparable(left: &Sample, right: &Sample) -> bool {
    let number = |sample: &Sample| matches!(sample.name.as_str(), "int" | "uint" | "double");
    let null = |sample: &Sample| sample.expression.expr == Expr::Literal(LiteralValue::Null);
    left.name == right.name || number(left) && number(right) || null(left) || null(right)
}

/// The name of a value's type as filters spell it: `timestamp`, not `google.protobuf.Timestamp`.
fn type_name(value: &dyn Val) -> String {
    let name = value.get_type().name();
    name.strip_prefix("google.protobuf.").unwrap_or(name).to_lowercase()
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn text(text: &str) -> Expr {
    Expr::Literal(LiteralValue::String(text.to_owned().into()))
}
