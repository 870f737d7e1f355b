//! The meter: it puts the calls that count into the tree of an expression.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators};

use super::{COMPARED, CONTAINED, KEPT, LEFT_NAME, MATCHES, PLUS, SEARCHED, STEP, TEXT};
use crate::core::filter::VARIABLES;

/// Keys of an entry whose values may be large. The others are short texts and numbers.
const OBJECTS: [&str; 7] = ["cluster", "change", "object", "gap", "actor", "redacted", "by"];

/// Makes an expression count what it takes. Returns whether it loops.
pub(in crate::core::filter) fn meter(expression: &mut IdedExpr) -> bool {
    let mut meter = Meter { bound: Vec::new(), loops: 0, has_loops: false };
    meter.visit(expression);
    meter.has_loops
}

struct Meter {
    /// The variables of the loops around.
    bound: Vec<String>,
    /// Depth of nested loops.
    loops: usize,
    has_loops: bool,
}

impl Meter {
    fn visit(&mut self, expression: &mut IdedExpr) {
        let id = expression.id;
        match &mut expression.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => {}
            Expr::Select(select) => self.visit(&mut select.operand),
            Expr::Call(call) => {
                if self.call(call) {
                    wrap(KEPT, expression);
                }
            }
            Expr::List(list) => {
                for element in &mut list.elements {
                    self.element(element);
                }
            }
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    match &mut entry.expr {
                        EntryExpr::StructField(field) => self.element(&mut field.value),
                        EntryExpr::MapEntry(entry) => {
                            self.element(&mut entry.key);
                            self.element(&mut entry.value);
                        }
                    }
                }
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, id),
        }
    }

    /// An element of a literal, which the interpreter copies. What is written in it has elements of its own.
    fn element(&mut self, element: &mut IdedExpr) {
        self.visit(element);
        if !self.is_small(element) && !matches!(element.expr, Expr::List(_) | Expr::Map(_)) {
            wrap(KEPT, element);
        }
    }

    /// Returns whether the value of the call is a copy that has to be counted.
    fn call(&mut self, call: &mut CallExpr) -> bool {
        let is_optional = |target: &IdedExpr| matches!(&target.expr, Expr::Ident(name) if name == "optional");
        if call.target.as_deref().is_some_and(is_optional) {
            for arg in &mut call.args {
                self.element(arg);
            }
            return false;
        }
        for part in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
            self.visit(part);
        }
        let in_loop = self.loops > 0;
        match (call.func_name.as_str(), call.args.as_mut_slice()) {
            (operators::ADD, [accumulator, appended]) if is_accumulator(accumulator) => {
                if let Expr::List(list) = &mut appended.expr {
                    let bare = |element: &&mut IdedExpr| !is_call(element, KEPT);
                    list.elements.iter_mut().filter(bare).for_each(|element| wrap(KEPT, element));
                }
            }
            (operators::ADD, [left, right])
                if !matches!((&left.expr, &right.expr), (Expr::Literal(_), Expr::Literal(_))) =>
            {
                PLUS.clone_into(&mut call.func_name);
            }
            ("matches", _) => MATCHES.clone_into(&mut call.func_name),
            (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => self.equals(left, right),
            (operators::IN, [value, values]) => {
                if !self.is_small(value) {
                    CONTAINED.clone_into(&mut call.func_name);
                } else if in_loop && !self.is_short(values) {
                    wrap(SEARCHED, values);
                }
            }
            (operators::INDEX, [_, key]) if in_loop => self.wrap_large(COMPARED, key),
            (operators::OPT_INDEX | operators::OPT_SELECT, [of, key]) => {
                if in_loop {
                    self.wrap_large(COMPARED, key);
                }
                return !is_owned(of);
            }
            (
                operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO
                | operators::NEGATE,
                args,
            ) if in_loop => args.iter_mut().for_each(|arg| self.wrap_large(COMPARED, arg)),
            (
                operators::CONDITIONAL
                | operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::NOT_STRICTLY_FALSE
                | "dyn"
                | "type"
                | "hasValue"
                | "value"
                | "or"
                | "orValue",
                _,
            ) => {}
            _ if in_loop => {
                for part in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
                    self.wrap_large(TEXT, part);
                }
            }
            _ => {}
        }
        false
    }

    fn equals(&self, left: &mut IdedExpr, right: &mut IdedExpr) {
        match (self.is_short(left), self.is_short(right)) {
            (false, false) => {
                wrap(COMPARED, left);
                wrap(COMPARED, right);
            }
            // A number on the left copies what it is compared with.
            (true, false) => std::mem::swap(left, right),
            (_, true) => {}
        }
    }

    fn comprehension(&mut self, of: &mut ComprehensionExpr, id: u64) {
        self.has_loops = true;
        self.visit(&mut of.iter_range);
        self.element(&mut of.accu_init);
        let nodes = nodes(&of.loop_cond) + nodes(&of.loop_step);
        let outside = self.bound.len();
        self.bound.extend([of.iter_var.clone(), of.accu_var.clone()]);
        self.bound.extend(of.iter_var2.clone());
        self.loops += 1;
        for part in [&mut of.loop_cond, &mut of.loop_step, &mut of.result] {
            self.visit(part);
        }
        self.loops -= 1;
        self.bound.truncate(outside);
        let turn = |function: &str| {
            let number =
                |number: u64| Expr::Literal(LiteralValue::Int(i64::try_from(number).unwrap_or(i64::MAX).into()));
            let args = [Expr::Ident(of.iter_var.clone()), number(nodes), number(id)];
            call(function, args.map(|expr| IdedExpr { id, expr }).into(), id)
        };
        let is_accumulated = |arg: &IdedExpr| matches!(&arg.expr, Expr::Ident(name) if *name == of.accu_var);
        let bool = |value: bool| IdedExpr { id, expr: Expr::Literal(LiteralValue::Boolean(value.into())) };
        let choice = |condition, yes, no| call(operators::CONDITIONAL, vec![condition, yes, no], id);
        if let Expr::Call(CallExpr { func_name, target: None, args }) = &mut of.loop_step.expr {
            let decides = matches!(func_name.as_str(), operators::LOGICAL_AND | operators::LOGICAL_OR);
            // `accumulator && P`, `accumulator || P`.
            if decides && args.len() == 2 && is_accumulated(&args[0]) {
                let decided = func_name == operators::LOGICAL_OR;
                let part = std::mem::take(&mut args[1]);
                args[1] = choice(turn(LEFT_NAME), part, bool(decided));
                return;
            }
            // `P ? accumulator + … : accumulator`: the interpreter knows this shape, and appends in place.
            if func_name == operators::CONDITIONAL && args.len() == 3 {
                let part = std::mem::take(&mut args[0]);
                args[0] = choice(turn(STEP), part, bool(false));
                return;
            }
        }
        let part = std::mem::take(&mut of.loop_step);
        let accumulator = IdedExpr { id, expr: Expr::Ident(of.accu_var.clone()) };
        of.loop_step = choice(turn(STEP), part, accumulator);
    }

    fn wrap_large(&self, function: &str, expression: &mut IdedExpr) {
        if !self.is_small(expression) {
            wrap(function, expression);
        }
    }

    /// Reports whether a value is a number, a short text or the like for every entry.
    fn is_small(&self, expression: &IdedExpr) -> bool {
        match &expression.expr {
            Expr::Literal(_) | Expr::Select(SelectExpr { test: true, .. }) => true,
            Expr::Ident(name) => {
                let is_key = VARIABLES.contains(&name.as_str()) && !OBJECTS.contains(&name.as_str());
                is_key && !self.bound.contains(name)
            }
            Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
                (operators::CONDITIONAL, [_, yes, no]) => self.is_small(yes) && self.is_small(no),
                (
                    operators::EQUALS
                    | operators::NOT_EQUALS
                    | operators::LESS
                    | operators::LESS_EQUALS
                    | operators::GREATER
                    | operators::GREATER_EQUALS
                    | operators::IN
                    | CONTAINED
                    | operators::LOGICAL_AND
                    | operators::LOGICAL_OR
                    | operators::LOGICAL_NOT
                    | operators::NOT_STRICTLY_FALSE
                    | operators::SUBSTRACT
                    | operators::MULTIPLY
                    | operators::DIVIDE
                    | operators::MODULO
                    | operators::NEGATE
                    | "size"
                    | "int"
                    | "uint"
                    | "double"
                    | "bool"
                    | "timestamp"
                    | "duration"
                    | "type"
                    | "hasValue"
                    | "contains"
                    | "startsWith"
                    | "endsWith"
                    | MATCHES,
                    _,
                ) => true,
                (name, _) => name.starts_with("get"),
            },
            Expr::Unspecified
            | Expr::Comprehension(_)
            | Expr::List(_)
            | Expr::Map(_)
            | Expr::Select(_)
            | Expr::Struct(_) => false,
        }
    }

    /// Reports whether a value is small, or a list or map of small values that the expression spells out.
    fn is_short(&self, expression: &IdedExpr) -> bool {
        if let Expr::List(list) = &expression.expr {
            return list.elements.iter().all(|element| self.is_short(element));
        }
        let Expr::Map(map) = &expression.expr else { return self.is_small(expression) };
        map.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::StructField(_) => false,
            EntryExpr::MapEntry(entry) => self.is_short(&entry.key) && self.is_short(&entry.value),
        })
    }
}

/// Reports whether a value has no other owner, so that its parts are moved out of it instead of copied.
fn is_owned(expression: &IdedExpr) -> bool {
    if let Expr::Select(select) = &expression.expr {
        return is_owned(&select.operand);
    }
    let Expr::Call(call) = &expression.expr else { return false };
    match call.func_name.as_str() {
        KEPT | operators::OPT_SELECT | operators::OPT_INDEX => true,
        operators::INDEX => call.args.first().is_some_and(is_owned),
        _ => false,
    }
}

/// Reports whether the node is the accumulator of a loop: nobody can write its name.
fn is_accumulator(expression: &IdedExpr) -> bool {
    matches!(&expression.expr, Expr::Ident(name) if name.starts_with('@'))
}

fn is_call(expression: &IdedExpr, function: &str) -> bool {
    matches!(&expression.expr, Expr::Call(call) if call.func_name == function)
}

fn call(function: &str, args: Vec<IdedExpr>, id: u64) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) }
}

fn wrap(function: &str, expression: &mut IdedExpr) {
    let inner = std::mem::take(expression);
    let id = inner.id;
    *expression = call(function, vec![inner], id);
}

/// Returns the number of nodes that are evaluated, except for the turns of loops.
fn nodes(expression: &IdedExpr) -> u64 {
    1 + match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => 0,
        Expr::Select(select) => nodes(&select.operand),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).map(nodes).sum(),
        Expr::List(list) => list.elements.iter().map(nodes).sum(),
        Expr::Map(map) => map.entries.iter().map(|entry| nodes_of_entry(&entry.expr)).sum(),
        Expr::Comprehension(of) => nodes(&of.iter_range) + nodes(&of.accu_init) + nodes(&of.result),
    }
}

fn nodes_of_entry(entry: &EntryExpr) -> u64 {
    match entry {
        EntryExpr::StructField(field) => nodes(&field.value),
        EntryExpr::MapEntry(entry) => nodes(&entry.key) + nodes(&entry.value),
    }
}
