//! Merkle trees as RFC 6962 hashes them: roots, proofs of inclusion and of consistency.
//!
//! A tree is given by the hashes of its complete subtrees, so that nobody has to hold all leaves: [`subtree`] asks for those that
//! are known and hashes the rest.

use aws_lc_rs::digest::{self, SHA256};

/// A SHA-256 digest.
pub type Hash = [u8; 32];

/// Returns the SHA-256 digest of the parts, one behind the other.
#[must_use]
pub fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = digest::Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut hash = Hash::default();
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// Returns the hash of a leaf with this content.
#[must_use]
pub fn leaf(content: &[u8]) -> Hash {
    sha256(&[&[0], content])
}

/// Returns the hash of the node above two others.
#[must_use]
pub fn node(left: &Hash, right: &Hash) -> Hash {
    sha256(&[&[1], left, right])
}

/// Returns the root of a tree of leaves whose hashes are these. Of an empty tree it is the digest of nothing.
#[must_use]
pub fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => sha256(&[]),
        [one] => *one,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            node(&root(left), &root(right))
        }
    }
}

/// Size of the left part of a tree with more than one leaf: the largest power of two below its size.
const fn split(size: u64) -> u64 {
    size.next_power_of_two() / 2
}

/// Returns the root over the leaves `first..end`, which is not empty. `known` gives the hash over a range, or nothing where it has to be
/// hashed from its halves; it has to know every single leaf.
///
/// # Errors
/// Those of `known`.
pub fn subtree<E>(
    first: u64,
    end: u64,
    known: &mut impl FnMut(u64, u64) -> Result<Option<Hash>, E>,
) -> Result<Hash, E> {
    if let Some(hash) = known(first, end)? {
        return Ok(hash);
    }
    let middle = first + split(end - first).max(1);
    if middle >= end {
        // A leaf that nobody knows has no hash, and no proof with this one is valid.
        return Ok(Hash::default());
    }
    Ok(node(&subtree(first, middle, known)?, &subtree(middle, end, known)?))
}

/// Returns the proof that leaf `index` is in the tree of the first `size` leaves: hashes from the leaf upwards.
///
/// # Errors
/// Those of `known`, which [`subtree`] describes.
pub fn prove<E>(
    index: u64,
    size: u64,
    known: &mut impl FnMut(u64, u64) -> Result<Option<Hash>, E>,
) -> Result<Vec<Hash>, E> {
    let (mut first, mut end, mut proof) = (0, size, Vec::new());
    while end - first > 1 {
        let middle = first + split(end - first);
        if index < middle {
            proof.push(subtree(middle, end, known)?);
            end = middle;
        } else {
            proof.push(subtree(first, middle, known)?);
            first = middle;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// Returns the proof that the tree of the first `old` leaves is the beginning of that of the first `size`.
///
/// # Errors
/// Those of `known`, which [`subtree`] describes.
pub fn prove_consistency<E>(
    old: u64,
    size: u64,
    known: &mut impl FnMut(u64, u64) -> Result<Option<Hash>, E>,
) -> Result<Vec<Hash>, E> {
    let mut proof = Vec::new();
    if old == 0 || old >= size {
        return Ok(proof);
    }
    let (mut first, mut end) = (0, size);
    // The verifier has the root of the old tree where nothing is left of it.
    let mut is_old_root = true;
    while end != old {
        let middle = first + split(end - first);
        if old <= middle {
            proof.push(subtree(middle, end, known)?);
            end = middle;
        } else {
            proof.push(subtree(first, middle, known)?);
            first = middle;
            is_old_root = false;
        }
    }
    if !is_old_root {
        proof.push(subtree(first, end, known)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Reports whether the proof shows that the leaf with this hash is leaf `index` of the tree (RFC 9162, 2.1.3.2).
#[must_use]
pub fn is_included(index: u64, size: u64, leaf: &Hash, proof: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut place, mut last, mut hash) = (index, size - 1, *leaf);
    for other in proof {
        if last == 0 {
            return false;
        }
        if place % 2 == 1 || place == last {
            hash = node(other, &hash);
            while place % 2 == 0 && place != 0 {
                (place, last) = (place / 2, last / 2);
            }
        } else {
            hash = node(&hash, other);
        }
        (place, last) = (place / 2, last / 2);
    }
    last == 0 && hash == *root
}

/// Reports whether the proof shows that the tree `old` is the beginning of the tree `new` (RFC 9162, 2.1.4.2). Each is a size and a root.
#[must_use]
pub fn is_consistent(old: (u64, &Hash), new: (u64, &Hash), proof: &[Hash]) -> bool {
    if old.0 == new.0 {
        return proof.is_empty() && old.1 == new.1;
    }
    if old.0 == 0 || old.0 > new.0 {
        return old.0 == 0 && proof.is_empty();
    }
    let mut hashes = proof.iter();
    let first = if old.0.is_power_of_two() { Some(old.1) } else { hashes.next() };
    let Some(first) = first else { return false };
    let (mut place, mut last) = (old.0 - 1, new.0 - 1);
    while place % 2 == 1 {
        (place, last) = (place / 2, last / 2);
    }
    let (mut of_old, mut of_new) = (*first, *first);
    for other in hashes {
        if last == 0 {
            return false;
        }
        if place % 2 == 1 || place == last {
            (of_old, of_new) = (node(other, &of_old), node(other, &of_new));
            while place % 2 == 0 && place != 0 {
                (place, last) = (place / 2, last / 2);
            }
        } else {
            of_new = node(&of_new, other);
        }
        (place, last) = (place / 2, last / 2);
    }
    last == 0 && of_old == *old.1 && of_new == *new.1
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn leaves(size: u64) -> Vec<Hash> {
        (0..size).map(|index| leaf(&index.to_be_bytes())).collect()
    }

    /// Knows the leaves alone, or the complete subtrees of 8 as well.
    fn known(leaves: &[Hash], block: u64) -> impl FnMut(u64, u64) -> Result<Option<Hash>, Infallible> {
        move |first, end| {
            let is_block = end - first == block && first.is_multiple_of(block);
            let range = usize::try_from(first).unwrap()..usize::try_from(end).unwrap();
            Ok((end - first == 1 || is_block).then(|| root(&leaves[range])))
        }
    }

    /// The trees of RFC 6962's reference implementation, whose leaves are the first of these.
    #[test]
    fn roots_are_those_of_the_reference() {
        let contents =
            ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
        let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        let bytes = |text: &str| text.as_bytes().chunks(2).map(byte).collect::<Vec<u8>>();
        let leaves: Vec<Hash> = contents.map(|content| leaf(&bytes(content))).to_vec();
        let roots = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        for (size, expected) in roots.iter().enumerate() {
            assert_eq!(root(&leaves[..size]).to_vec(), bytes(expected), "of {size} leaves");
        }
    }

    /// Every proof of every tree of up to 40 leaves is accepted, and with anything of it changed it is not.
    #[test]
    fn proofs_are_accepted_and_altered_ones_are_not() {
        for size in 1..40 {
            let leaves = leaves(size);
            let of = root(&leaves);
            for index in 0..size {
                let leaf = &leaves[usize::try_from(index).unwrap()];
                for block in [1, 8] {
                    let Ok(proof) = prove(index, size, &mut known(&leaves, block));
                    assert!(is_included(index, size, leaf, &proof, &of), "leaf {index} of {size}");
                    for place in 0..proof.len() {
                        let mut altered = proof.clone();
                        altered[place][7] ^= 1;
                        assert!(!is_included(index, size, leaf, &altered, &of));
                    }
                    assert!(!is_included(index, size, &of, &proof, &of) || size == 1);
                    assert!(!is_included((index + 1) % size, size, leaf, &proof, &of) || size == 1);
                    assert!(proof.is_empty() || !is_included(index, size, leaf, &proof[1..], &of));
                }
            }
            for old in 1..=size {
                let Ok(proof) = prove_consistency(old, size, &mut known(&leaves, 8));
                let of_old = root(&leaves[..usize::try_from(old).unwrap()]);
                assert!(is_consistent((old, &of_old), (size, &of), &proof), "{old} of {size}");
                assert!(!is_consistent((old, &leaf(b"other")), (size, &of), &proof));
                assert!(!is_consistent((old, &of_old), (size, &leaf(b"other")), &proof));
                for place in 0..proof.len() {
                    let mut altered = proof.clone();
                    altered[place][0] ^= 1;
                    assert!(!is_consistent((old, &of_old), (size, &of), &altered));
                }
            }
        }
    }
}
