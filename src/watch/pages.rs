//! The pages of one list, and what no list that ends can have in them.
//!
//! A list is one snapshot: a token leads to one page, an object is on one page, and `remainingItemCount` counts down. A server
//! whose pages say otherwise may go on for ever, so its list is given up. Memory is bounded: of what comes, numbers are kept,
//! and of many numbers a part, chosen by the numbers themselves.
//!
//! # Decision: a list that cannot end is given up
//!
//! Context: Broken servers repeat tokens, or send pages for ever.
//! Decision: A list is one snapshot: a repeated token, a page of known objects, 200 empty pages in a row, or many more objects
//! than the smallest count show a list without an end. It is counted, reported and begun again after a growing wait, from the
//! third time on in one piece. Hashes bound the memory.
//! Cost: Ever new objects without a count look like a large cluster; only space ends that.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Numbers that are kept at most.
const KEPT: usize = 1 << 16;
/// Pages in a row without an object. A proxy that leaves out what an account may not see sends such pages, too.
const EMPTY: u32 = 200;
/// Objects beyond what the API server counted, and a tenth of the count: the count is an estimate.
const SLACK: u64 = 500;

/// Numbers that have come, as far as there is room for them.
#[derive(Debug, Default)]
struct Sample {
    numbers: HashSet<u64>,
    /// A number is kept where none of these bits is set.
    mask: u64,
}

impl Sample {
    /// Keeps the number. Returns whether it is new, and nothing where it is not among those that are kept.
    fn meet(&mut self, number: u64) -> Option<bool> {
        if number & self.mask != 0 {
            return None;
        }
        let new = self.numbers.insert(number);
        if self.numbers.len() > KEPT {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.numbers.retain(|number| number & mask == 0);
            self.numbers.shrink_to_fit();
        }
        Some(new)
    }
}

/// The pages of one list so far.
#[derive(Debug, Default)]
pub(super) struct Pages {
    keys: RandomState,
    tokens: Sample,
    objects: Sample,
    /// Objects so far, and up to the page before.
    came: u64,
    before: u64,
    /// Number of objects of this page that are new; only those that are kept count.
    new: u64,
    repeated: u64,
    /// Pages without an object, in a row.
    empty: u32,
    /// Objects of the whole list by the least of the API server's counts.
    counted: Option<u64>,
}

impl Pages {
    /// An object of the page that is being read.
    pub(super) fn object(&mut self, namespace: &str, name: &str) {
        self.came += 1;
        if name.is_empty() {
            // Nothing tells two of them apart.
            self.new += 1;
            return;
        }
        match self.objects.meet(self.keys.hash_one((namespace, name))) {
            Some(true) => self.new += 1,
            Some(false) => self.repeated += 1,
            None => {}
        }
    }

    /// Objects so far.
    pub(super) const fn came(&self) -> u64 {
        self.came
    }

    /// The page has ended: `next` is the token of the one after it, `left` how many objects the API server says are to come.
    ///
    /// # Errors
    /// What shows that the list does not end, as a sentence.
    pub(super) fn end_of_page(&mut self, next: Option<&str>, left: Option<u64>) -> Result<(), String> {
        let (new, repeated) = (std::mem::take(&mut self.new), std::mem::take(&mut self.repeated));
        let is_empty = std::mem::replace(&mut self.before, self.came) == self.came;
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        let Some(token) = next else { return Ok(()) };
        if self.tokens.meet(self.keys.hash_one(token)) == Some(false) {
            return Err(endless("a page names a next page (metadata.continue) that the list has had"));
        }
        if repeated > 0 && new == 0 {
            return Err(endless("a page has only objects of earlier pages, and names a next page"));
        }
        if self.empty >= EMPTY {
            return Err(endless(&format!("{EMPTY} pages in a row have no object, and each names a next page")));
        }
        if let Some(left) = left {
            let counted = self.came.saturating_add(left);
            self.counted = Some(self.counted.map_or(counted, |before| before.min(counted)));
        }
        match self.counted {
            Some(counted) if self.came > counted.saturating_add(counted / 10 + SLACK) => {
                Err(endless(&format!("{} objects have come, and by remainingItemCount there are {counted}", self.came)))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn endless(what: &str) -> String {
    format!("the API server's list does not end: {what}; look at what serves this resource, or exclude it")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many pages a list is given up, of at most `most`: a page is its objects, its token and its count.
    fn given_up(most: usize, page: impl Fn(usize) -> (std::ops::Range<usize>, String, Option<u64>)) -> Option<usize> {
        let mut pages = Pages::default();
        (0..most).find(|number| {
            let (objects, token, left) = page(*number);
            objects.for_each(|object| pages.object("shop", &object.to_string()));
            let last = number + 1 == most;
            pages.end_of_page(Some(&*token).filter(|_| !last), left).is_err()
        })
    }

    fn token(number: usize) -> String {
        format!("t{number}")
    }

    #[test]
    fn lists_that_end_are_never_given_up() {
        // A million objects in pages of 500, with and without a count, and where the count is an estimate.
        let page = |number: usize| number * 500..number * 500 + 500;
        let left = |number: usize| (1_999 - number as u64) * 500;
        assert_eq!(given_up(2_000, |number| (page(number), token(number), Some(left(number)))), None);
        assert_eq!(given_up(2_000, |number| (page(number), token(number), None)), None);
        assert_eq!(given_up(2_000, |number| (page(number), token(number), Some(left(number) * 19 / 20))), None);
        // Pages of one object; pages whose objects an account may not see.
        assert_eq!(given_up(100_000, |number| (number..number + 1, token(number), None)), None);
        assert_eq!(given_up(150, |number| (0..0, token(number), Some(0))), None);
        // A few objects are on two pages.
        assert_eq!(given_up(2_000, |number| (number * 500..number * 500 + 502, token(number), None)), None);
    }

    #[test]
    fn lists_that_do_not_end_are_given_up() {
        let page = |number: usize| number * 500..number * 500 + 500;
        let soon = |given_up: Option<usize>| given_up.unwrap_or_else(|| panic!("it is never given up"));
        assert_eq!(given_up(9_999, |number| (page(number), "same".to_owned(), None)), Some(1));
        assert_eq!(given_up(9_999, |number| (page(number), token(number % 3), None)), Some(3));
        assert_eq!(given_up(9_999, |number| (page(number), " ".to_owned(), None)), Some(1));
        assert_eq!(given_up(9_999, |number| (0..500, token(number), None)), Some(1));
        assert_eq!(given_up(9_999, |number| (page(number % 4), token(number), None)), Some(4));
        assert_eq!(given_up(9_999, |number| (0..0, token(number), None)), Some(199));
        assert_eq!(given_up(9_999, |number| (page(number), token(number), Some(5))), Some(2), "it never goes down");
        assert!(soon(given_up(9_999, |number| (page(number), token(number), (number == 0).then_some(10_000)))) < 30);
        assert!(soon(given_up(9_999, |number| (number..number + 1, token(number), Some(0)))) < 600);
        // Rings that are longer than what is kept.
        assert!(soon(given_up(999_999, |number| (number..number + 1, token(number % 100_000), None))) < 220_000);
        assert!(
            soon(given_up(999_999, |number| (number % 100_000..number % 100_000 + 1, token(number), None))) < 220_000
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut sample = Sample::default();
        let keys = RandomState::new();
        for number in 0..1_000_000 {
            sample.meet(keys.hash_one(number));
            assert!(sample.numbers.len() <= KEPT);
        }
        assert!(sample.numbers.len() > KEPT / 4, "{}", sample.numbers.len());
    }
}
