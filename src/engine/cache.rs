//! A cache that is bounded by the weight of what it holds; what was used least recently goes first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared values by key.
#[derive(Debug)]
pub struct Cache<K, V> {
    most: usize,
    entries: Mutex<Entries<K, V>>,
}

#[derive(Debug)]
struct Entries<K, V> {
    clock: u64,
    weight: usize,
    map: HashMap<K, Entry<V>>,
}

#[derive(Debug)]
struct Entry<V> {
    value: Arc<V>,
    weight: usize,
    used: u64,
}

impl<K: Eq + Hash + Clone, V> Cache<K, V> {
    /// A cache for values that together weigh at most `most` (bytes, say).
    pub fn new(most: usize) -> Cache<K, V> {
        let entries = Entries { clock: 0, weight: 0, map: HashMap::new() };
        Cache { most, entries: Mutex::new(entries) }
    }

    /// The value of `key`, if it is here.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut entries = self.lock();
        entries.clock += 1;
        let now = entries.clock;
        let entry = entries.map.get_mut(key)?;
        entry.used = now;
        Some(Arc::clone(&entry.value))
    }

    /// Keeps `value`, and gives up others until all fit; one that is heavier than all together may
    /// be is not kept.
    pub fn put(&self, key: K, value: Arc<V>, weight: usize) {
        if weight > self.most {
            return;
        }
        let mut entries = self.lock();
        entries.clock += 1;
        let entry = Entry { value, weight, used: entries.clock };
        entries.weight += weight;
        if let Some(old) = entries.map.insert(key, entry) {
            entries.weight -= old.weight;
        }
        if entries.weight > self.most {
            entries.shrink_to(self.most - self.most / 4);
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let mut entries = self.lock();
        entries.map.clear();
        entries.weight = 0;
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone, V> Entries<K, V> {
    /// Gives up a quarter at a time, so that the search for the oldest costs little an entry.
    fn shrink_to(&mut self, goal: usize) {
        let mut by_age: Vec<_> = self.map.iter().map(|(k, e)| (e.used, k.clone())).collect();
        by_age.sort_unstable_by_key(|(used, _)| *used);
        let newest = by_age.pop();
        for (_, key) in by_age {
            if self.weight <= goal {
                break;
            }
            if let Some(gone) = self.map.remove(&key) {
                self.weight -= gone.weight;
            }
        }
        debug_assert!(newest.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_bound_and_keeps_what_is_used() {
        let cache = Cache::new(100);
        for n in 0..50 {
            cache.put(n, Arc::new(n), 10);
            assert!(cache.get(&0).is_some(), "used each time");
            assert!(cache.lock().weight <= 100);
        }
        assert!(cache.get(&1).is_none());
        cache.put(99, Arc::new(99), 101);
        assert!(cache.get(&99).is_none(), "too heavy");
        cache.clear();
        assert!(cache.get(&0).is_none());
    }
}
