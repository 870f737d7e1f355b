//! Reverts: the version before a change, with what the change added, removed and moved.

use super::{Body, Budget, Cow, Mark, NODES, Node, Op, steps};

impl<'a> Node<'a> {
    /// Takes a patch back: what it brought is marked, what it took away is restored beside it.
    ///
    /// # Errors
    /// Where what it took away is no JSON.
    pub(crate) fn revert(&mut self, patch: &[Op<'a>]) -> Result<(), serde_json::Error> {
        self.revert_within(patch, NODES)
    }

    /// Reverts as [`Node::revert`] does, for at most `nodes` nodes of removed values and of values that have to be parsed.
    pub(super) fn revert_within(&mut self, patch: &[Op<'a>], nodes: usize) -> Result<(), serde_json::Error> {
        let mut budget = Budget::of(nodes);
        for op in patch.iter().rev() {
            let was = op.was.map(|was| Self::read(was.get(), 0, &mut budget)).transpose()?;
            self.take_back(op, was, &mut budget);
        }
        Ok(())
    }

    /// Puts elements that a patch moved back to where they stand in the object, with what went from behind each of them.
    pub(crate) fn settle(&mut self) {
        match &mut self.body {
            Body::Object(members) => {
                members.retain(|(_, node)| !node.is_forgotten());
                members.iter_mut().for_each(|(_, node)| node.settle());
            }
            Body::Array(items) => {
                items.iter_mut().for_each(Self::settle);
                if !items.iter().filter_map(|item| item.home).is_sorted() {
                    let mut last = None;
                    let mut homes: Vec<(Option<usize>, Self)> = Vec::with_capacity(items.len());
                    for item in items.drain(..) {
                        last = item.home.or(last);
                        homes.push((last, item));
                    }
                    homes.sort_by_key(|(home, _)| *home);
                    items.extend(homes.into_iter().map(|(_, item)| item));
                }
            }
            Body::Leaf(_) => {}
        }
    }

    /// Takes one patch of many back, of which nothing is remembered but who brought what is in the tree now: `origin`,
    /// where nobody later did.
    /// Says whether it was credited with anything.
    pub(crate) fn revert_to(&mut self, patch: &[Op<'_>], origin: usize) -> bool {
        let mut credited = false;
        for op in patch.iter().rev() {
            // What is kept as JSON is somebody's as a whole: of many patches, all of it would be looked into at last.
            if let Some(brought) = self.take_back(op, Some(Self::opaque()), &mut Budget::of(0)) {
                credited |= brought.credit(origin);
            }
        }
        credited
    }

    /// Marks a value, by its JSON pointer, as another one which redaction shows as the same text.
    pub(crate) fn redacted(&mut self, pointer: &str) {
        let mut at = self;
        for step in steps(pointer) {
            let Some(below) = at.child(&step) else { return };
            at = below;
        }
        if matches!(at.mark, Mark::Same) {
            at.mark = Mark::Redacted;
        }
    }

    /// Attributes every value below that has no origin to `origin`. Reports whether there was one.
    pub(crate) fn credit(&mut self, origin: usize) -> bool {
        match &mut self.body {
            Body::Object(members) if !members.is_empty() => {
                members.iter_mut().map(|(_, node)| node.credit(origin)).filter(|credited| *credited).count() > 0
            }
            Body::Array(items) if !items.is_empty() => {
                items.iter_mut().map(|node| node.credit(origin)).filter(|credited| *credited).count() > 0
            }
            Body::Object(_) | Body::Array(_) | Body::Leaf(_) => {
                let first = self.origin.is_none() && !matches!(self.mark, Mark::Gone);
                self.origin.get_or_insert(origin);
                first
            }
        }
    }

    /// Reports whether every value below has an origin.
    pub(crate) fn is_credited(&self) -> bool {
        match &self.body {
            Body::Object(members) if !members.is_empty() => members.iter().all(|(_, node)| node.is_credited()),
            Body::Array(items) if !items.is_empty() => items.iter().all(Node::is_credited),
            Body::Object(_) | Body::Array(_) | Body::Leaf(_) => {
                self.origin.is_some() || matches!(self.mark, Mark::Gone)
            }
        }
    }

    /// Takes a move back. Whoever moved an element changed nothing of it.
    pub(super) fn take_move_back(&mut self, op: &Op<'_>, budget: &mut Budget) -> Option<()> {
        let mut found = Some(&mut *self);
        let mut way = steps(&op.path);
        let last = way.pop()?;
        for (depth, step) in way.iter().enumerate() {
            let at = found?;
            if at.is_closed() && !at.open(depth, budget) {
                at.changed_within();
                return None;
            }
            found = at.child(step);
        }
        let at = found?;
        if at.is_closed() && !at.open(way.len(), budget) {
            at.changed_within();
            return None;
        }
        let place = at.place(&last)?;
        let node = at.remove(place)?;
        let mut way = steps(op.from.as_deref()?);
        let last = way.pop()?;
        let mut at = self;
        for step in &way {
            at = at.child(step)?;
        }
        at.put_back(last, node);
        Some(())
    }

    /// Takes one operation back; gives the value that it brought, where that is in the tree.
    pub(super) fn take_back<'t>(
        &'t mut self,
        op: &Op<'_>,
        was: Option<Node<'a>>,
        budget: &mut Budget,
    ) -> Option<&'t mut Self> {
        if op.op == "move" {
            self.take_move_back(op, budget);
            return None;
        }
        let mut at = self;
        let mut steps = steps(&op.path);
        let last = steps.pop();
        for (depth, step) in steps.iter().enumerate() {
            if at.is_closed() && !at.open(depth, budget) {
                return Some(at.changed_within());
            }
            at = at.child(step)?;
        }
        if at.is_closed() && last.is_some() && !at.open(steps.len(), budget) {
            return Some(at.changed_within());
        }
        match (&*op.op, last) {
            ("replace", last) => {
                let brought = match last {
                    Some(step) => at.child(&step)?,
                    None => at,
                };
                if matches!(brought.mark, Mark::Gone) {
                    return None;
                }
                // What was the text before is the text now: only a digest distinguished the two.
                let same = op.was.zip(op.value).is_some_and(|(was, value)| was.get() == value.get());
                brought.mark = match was {
                    _ if same => Mark::Redacted,
                    Some(was) => Mark::Was(Box::new(was)),
                    // What was there before cannot be read any more.
                    None => Mark::Added,
                };
                Some(brought)
            }
            ("add", Some(step)) => {
                let place = at.place(&step)?;
                let known = at.at(place);
                known.there = false;
                if matches!(known.mark, Mark::Gone) {
                    // It came and went, all of it later than what the tree goes back to.
                    at.forget(place);
                    return None;
                }
                known.mark = Mark::Added;
                Some(at.at(place))
            }
            ("remove", Some(step)) => {
                at.put_back(step, Self { home: None, ..was.unwrap_or_else(Self::opaque).gone() });
                None
            }
            _ => None,
        }
    }

    pub(super) fn at(&mut self, place: usize) -> &mut Self {
        match &mut self.body {
            Body::Object(members) => &mut members[place].1,
            Body::Array(items) => &mut items[place],
            Body::Leaf(_) => unreachable!("a place is one in a container"),
        }
    }

    /// Takes something out that was not there before it came.
    pub(super) fn forget(&mut self, place: usize) {
        match &mut self.body {
            // It is gone either way, and what stands behind it stays where it is: there may be thousands.
            Body::Object(members) => {
                members[place].1.there = false;
                // An object of which nothing is left has nothing in it, and somebody has set that.
                while members.last().is_some_and(|(_, node)| node.is_forgotten()) {
                    members.pop();
                }
            }
            Body::Array(items) => drop(items.remove(place)),
            Body::Leaf(_) => {}
        }
    }

    /// Reports whether the node was added and removed later than the moment to which the tree is reverted.
    pub(super) fn is_forgotten(&self) -> bool {
        !self.there && matches!(self.mark, Mark::Gone)
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Self> {
        match &mut self.body {
            Body::Object(members) => Some(members.remove(place).1),
            Body::Array(items) => Some(items.remove(place)),
            Body::Leaf(_) => None,
        }
    }

    /// Puts what a patch took from under a name or an index back there.
    pub(super) fn put_back(&mut self, step: String, node: Self) {
        match &mut self.body {
            Body::Object(members) => {
                self.near = usize::MAX;
                members.push((Cow::Owned(step), node));
            }
            Body::Array(items) => {
                let Ok(index) = step.parse::<usize>() else { return };
                // Before whatever has come in the same place.
                let before = items.iter().enumerate().filter(|(_, item)| item.there).nth(index.wrapping_sub(1));
                let place = if index == 0 { 0 } else { before.map_or(items.len(), |(place, _)| place + 1) };
                items.insert(place, node);
            }
            Body::Leaf(_) => {}
        }
    }

    pub(super) fn child(&mut self, step: &str) -> Option<&mut Self> {
        let place = self.place(step)?;
        Some(self.at(place))
    }

    /// Returns the position in the body of the present member or element with this name or index.
    pub(super) fn place(&mut self, step: &str) -> Option<usize> {
        // Inside of what took the place of another there is nothing of the other.
        if matches!(self.mark, Mark::Was(_) | Mark::Gone) {
            return None;
        }
        match &self.body {
            Body::Object(members) => {
                let is_it = |place: &usize| {
                    #[cfg(test)]
                    super::tests::LOOKED.with(|looked| looked.set(looked.get() + 1));
                    let (key, node) = &members[*place];
                    node.there && key == step
                };
                // What a patch names stands near to what it named before, on either side.
                let near = self.near.min(members.len());
                let outward =
                    |away: usize| [near.checked_sub(away + 1), Some(near + away).filter(|at| *at < members.len())];
                let found = (0..members.len()).flat_map(outward).flatten().find(is_it)?;
                self.near = found;
                Some(found)
            }
            Body::Array(items) => {
                let mut there = items.iter().enumerate().filter(|(_, item)| item.there);
                match step {
                    "-" => there.next_back(),
                    step => there.nth(step.parse().ok()?),
                }
                .map(|(place, _)| place)
            }
            Body::Leaf(_) => None,
        }
    }
}
