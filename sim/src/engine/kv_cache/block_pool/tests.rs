//! Tests of the pool of KV blocks.

use super::*;
use proptest::prelude::*;

fn content(prefix: &[u64], request: u32) -> Content<'_> {
    Content { prefix, prefix_block: 32, block_size: 16, hash_lookahead: 0, request }
}

#[test]
fn equal_prefixes_hit_until_evicted() {
    let mut pool = BlockPool::new(8);
    let ids = [10, 11];
    let mut a = BlockTable::default();
    pool.grow(&mut a, 5);
    pool.register(&mut a, &content(&ids, 0), 5);
    // Table `a` has the prefix blocks 10 and 11. The lookup asks for 10 and 99, so only prefix block 10 is found. A
    // prefix block has 32 tokens, which are two KV blocks, so there are two hits.
    assert_eq!(pool.lookup(&content(&[10, 99], 1), 8, false), (2, 0));
    assert_eq!(pool.lookup(&content(&[11], 1), 8, false), (0, 0));
    pool.release(&mut a, 0);
    assert_eq!(pool.used(), 0);
    // All five blocks of request 0 were freed. A lookup for the same content hits all five, and all five are in the
    // free queue.
    assert_eq!(pool.lookup(&content(&ids, 0), 8, false), (5, 5));
    let mut b = BlockTable::default();
    pool.take_hits(&mut b, &content(&ids, 1), 4);
    assert_eq!((pool.free(), b.blocks.len()), (4, 4));
    // Table `b` takes the four free blocks in the order of the free queue: first three blocks that were never used,
    // then a cached block. Then the pool is empty.
    pool.grow(&mut b, 4);
    assert_eq!(pool.free(), 0);
    assert_eq!(pool.lookup(&content(&ids, 0), 8, false), (4, 0));
    pool.release(&mut b, 0);
    assert_eq!((pool.free(), pool.walk()), (8, 8));
}

#[test]
fn content_is_found_as_long_as_one_of_its_blocks_is_left() {
    let mut pool = BlockPool::new(2);
    let (mut a, mut b, mut c) = (BlockTable::default(), BlockTable::default(), BlockTable::default());
    for table in [&mut a, &mut b] {
        pool.grow(table, 1);
        pool.register(table, &content(&[10], 0), 1);
    }
    pool.release(&mut a, 0);
    // Table `c` gets the only free block, which was cached for table `a`, so this block's content is dropped. The
    // lookup still finds the same content in the block of table `b`.
    pool.grow(&mut c, 1);
    assert_eq!(pool.lookup(&content(&[10], 1), 1, false), (1, 0));
    pool.release(&mut b, 0);
    pool.grow(&mut c, 1);
    assert_eq!(pool.lookup(&content(&[10], 1), 1, false), (0, 0));
}

/// One step of a test: a table grows, is preempted, or ends.
type Op = (usize, u32, u32);

proptest! {
    /// A pool whose requests share no content has the same hits and the same free queue, whether or not it knows
    /// this. A pool that counts its blocks up to the first preemption has the same hits. Requests grow, register
    /// blocks, are preempted and come back, and end.
    #[test]
    fn putting_off_hashes_changes_nothing(ops in prop::collection::vec((0usize..5, 0u32..9, 0u32..4), 1..300)) {
        let mut pools = [BlockPool::new(24), BlockPool::new(24).unshared(), BlockPool::counting(24)];
        let mut tables = [(); 3].map(|()| vec![BlockTable::default(); 5]);
        let mut number = [0u32, 1, 2, 3, 4];
        for (who, count, what) in ops as Vec<Op> {
            let mut seen = Vec::new();
            for (pool, tables) in pools.iter_mut().zip(&mut tables) {
                if pool.counts() && what == 2 {
                    pool.name(tables.iter_mut());
                }
                let held = tables[who].blocks.len() as u32 + tables[who].counted;
                let (table, content) = (&mut tables[who], content(&[], number[who]));
                match what {
                    0 if held == 0 => {
                        let found = pool.lookup(&content, count, count % 2 == 1);
                        pool.take_hits(table, &content, found.0);
                        seen.push(found.0 + 100 * found.1);
                    }
                    0 => pool.register(table, &content, count.min(held)),
                    1 if count <= pool.free() => pool.grow(table, count),
                    1 => {}
                    2 => {
                        pool.publish(table, &content);
                        pool.release(table, 0);
                    }
                    _ => pool.release(table, count),
                }
                seen.push(pool.free());
            }
            number[who] += if what == 3 { 5 } else { 0 };
            let third = seen.len() / 3;
            prop_assert_eq!(&seen[..third], &seen[third..2 * third]);
            prop_assert_eq!(&seen[..third], &seen[2 * third..]);
            let blocks = |tables: &[BlockTable]| tables.iter().map(|t| t.blocks.clone()).collect::<Vec<_>>();
            prop_assert_eq!(blocks(&tables[0]), blocks(&tables[1]));
            prop_assert_eq!(&pools[0].next, &pools[1].next);
        }
    }

    /// Invariant 3: used + free = total at any time, and the free queue holds exactly the free blocks.
    #[test]
    fn blocks_are_conserved(ops in prop::collection::vec((0usize..4, 0u32..6, any::<bool>()), 1..200)) {
        let mut pool = BlockPool::new(20);
        let ids = [1, 2, 3];
        let mut tables: Vec<BlockTable> = vec![BlockTable::default(); 4];
        for (who, count, release) in ops {
            let what = content(&ids[..who.min(3)], who as u32);
            if release {
                let full = tables[who].blocks.len() as u32;
                pool.register(&mut tables[who], &what, full);
                pool.release(&mut tables[who], 0);
            } else if tables[who].blocks.is_empty() {
                let (hits, _) = pool.lookup(&what, count, false);
                pool.take_hits(&mut tables[who], &what, hits);
            } else if count <= pool.free() {
                pool.grow(&mut tables[who], count);
            }
            let held: std::collections::HashSet<_> = tables.iter().flat_map(|t| &t.blocks).collect();
            prop_assert_eq!(held.len() as u32, pool.used());
            prop_assert_eq!(pool.walk(), pool.free());
        }
        tables.iter_mut().for_each(|t| pool.release(t, 0));
        prop_assert_eq!(pool.used(), 0);
    }
}
