//! How RocksDB is set, and how the memory it gets is shared out. The reasons stand at each setting, the
//! figures in `docs/adr/0001-engine.md`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, CompactionPri, DBCompressionType, DBRecoveryMode,
    DataBlockIndexType, LogLevel, Options,
};

/// What the engine may know of the keys, to lay them out well.
#[derive(Clone, Copy, Debug)]
pub struct KeyShape {
    /// Keys that share so many first bytes are a family: of one kind, and changed in a similar order. Large families get tables of
    /// their own. 0: all keys are one.
    pub family_bytes: usize,
    /// The number of a key of a family that comes in the order of its numbers, or in several such sequences at a time. All keys of
    /// such a family have one, and are in its order.
    pub number: fn(&[u8]) -> Option<u64>,
    /// Of a key with a number: who removes it removes all keys of its family and number, in the same commit or before.
    pub whole: fn(&[u8]) -> bool,
    /// How many first bytes a key has in common with all that are scanned together with it, mostly; the same for all keys that begin
    /// with these. Scans of more are slower, at first.
    pub scanned: fn(&[u8]) -> usize,
}

impl KeyShape {
    pub(super) fn family(self, key: &[u8]) -> &[u8] {
        key.get(..self.family_bytes).unwrap_or(key)
    }

    pub(super) fn group(self, key: &[u8]) -> &[u8] {
        key.get(..(self.scanned)(key)).unwrap_or(key)
    }
}

impl Default for KeyShape {
    fn default() -> Self {
        Self { family_bytes: 0, number: |_| None, whole: |_| false, scanned: |_| 0 }
    }
}

/// Where the embedded engine lives and what it may use.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// The engine's own directory.
    pub directory: PathBuf,
    /// Bytes for block cache, filters, indexes, memtables, record cache and recent values together.
    pub memory_bytes: usize,
    /// Make a store where there is none (in a missing or empty directory).
    pub create: bool,
    /// Read only: nothing below is changed, and no lock is taken, so that the state seen is that of the
    /// moment of opening. Commits fail with EROFS. Beside a writer, which takes away tables that it has merged, reads of
    /// those that this engine has not opened by then fail with ENOENT: who reads for long keeps writers out.
    pub read_only: bool,
    /// What is known of the keys.
    pub keys: KeyShape,
    /// Records of the journal are written by calls even where stores into a mapped file are safe: as on all other file systems.
    pub journal_by_calls: bool,
}

impl EmbeddedOptions {
    /// An existing store, for reading and writing.
    pub fn new(directory: impl Into<PathBuf>, memory_bytes: usize) -> Self {
        Self {
            directory: directory.into(),
            memory_bytes,
            create: false,
            read_only: false,
            keys: KeyShape::default(),
            journal_by_calls: false,
        }
    }
}

const MIB: usize = 1 << 20;
/// Where control groups are to be seen.
const GROUPS: &str = "/sys/fs/cgroup";
/// What compaction makes its tables of.
pub(super) const TABLE_BYTES: u64 = 32 << 20;
/// With so many threads at a time it opens those that it opens at the start (16).
pub(super) const OPENING_THREADS: i32 = 4;

/// The memory's shares.
pub(super) struct Budget {
    /// The record cache: hot point reads.
    pub(super) records_bytes: usize,
    /// Values that are too large for it and were written lately.
    pub(super) recent_bytes: usize,
    /// Blocks, indexes and filters.
    pub(super) blocks_bytes: usize,
    /// A segment of the journal; what is held of it in memory takes up to some twice that.
    pub(super) segment_bytes: u64,
}

impl Budget {
    pub(super) fn of(memory_bytes: usize) -> Self {
        let recent_bytes = memory_bytes / 8;
        let memory_bytes = memory_bytes - recent_bytes;
        let records_bytes = memory_bytes / 16 * 3;
        // A third for the intake (four segments' worth that waits for a lull, and three more, up to twice their size in memory), and a sixteenth
        // for what RocksDB charges to nobody: table readers, iterators, versions, the table in the making.
        let blocks_bytes = memory_bytes - records_bytes - memory_bytes / 3 - memory_bytes / 16;
        let segment_bytes = (memory_bytes / 24).clamp(MIB / 4, 16 * MIB) as u64;
        Self { records_bytes, recent_bytes, blocks_bytes, segment_bytes }
    }

    /// A small file system is not filled with the journal: at most a 64th of it for the eight segments.
    pub(super) fn on(mut self, directory: &Path) -> Self {
        const PART: u64 = 64 * 8;
        if let Ok(space) = rustix::fs::statvfs(directory) {
            let share_bytes = space.f_blocks.saturating_mul(space.f_frsize) / PART;
            self.segment_bytes = self.segment_bytes.min(share_bytes.max(MIB as u64 / 4));
        }
        self
    }

    /// Where there is little memory recent values get a 64th of it at most.
    pub(super) fn within(mut self, memory_bytes: u64) -> Self {
        const PART: u64 = 64;
        let most = usize::try_from(memory_bytes / PART).unwrap_or(usize::MAX);
        self.recent_bytes = self.recent_bytes.min(most);
        self
    }

    /// Whether filters and indexes of tables of this size take no more than half of the blocks' share.
    fn filters_fit(&self, tables_bytes: u64) -> bool {
        /// Measured: a record takes some 40 bytes in a compressed table, 1.25 in its filter, and its block
        /// about as much in the index.
        const TABLE_BYTES_PER_FILTER_BYTE: u64 = 16;
        tables_bytes / TABLE_BYTES_PER_FILTER_BYTE <= self.blocks_bytes as u64 / 2
    }
}

/// The memory that this process may have: the machine's, or what its control groups leave it.
pub(super) fn memory_there() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine = (machine.totalram as u64).saturating_mul(machine.mem_unit.into());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups.lines().filter_map(|line| limit_of(Path::new(GROUPS), line)).fold(machine, u64::min)
}

/// Of a line of `/proc/self/cgroup` (`cgroups(7)`), `NUMBER:CONTROLLERS:PATH`, and the groups above that one; either version of them.
fn limit_of(groups: &Path, line: &str) -> Option<u64> {
    let (_, group) = line.split_once(':')?;
    let (controllers, path) = group.split_once(":/")?;
    let (groups, file) = match controllers {
        "" => (groups.to_owned(), "memory.max"),
        _ if controllers.split(',').any(|one| one == "memory") => {
            (groups.join("memory"), "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let own = groups.join(path);
    let own_and_above = own.ancestors().take_while(|group| group.starts_with(&groups));
    own_and_above.filter_map(|group| limit_in(&group.join(file))).min()
}

/// None: there is no limit.
fn limit_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The settings and the cache that they share.
/// `tables_bytes`: the size of the tables that are there.
pub(super) fn rocksdb_options(budget: &Budget, tables_bytes: u64) -> (Options, Cache) {
    let cache = Cache::new_hyper_clock_cache(budget.blocks_bytes, 0);
    let mut options = without_preallocation();
    set_log(&mut options);
    set_tables(&mut options, &cache, budget.filters_fit(tables_bytes));
    set_background(&mut options);
    set_opening(&mut options);
    (options, cache)
}

/// RocksDB sets space aside for a file that it writes, 4 MiB for a manifest and all that compaction may make for a table, and goes on
/// where it gets less: on a nearly full file system it has then taken what the next file needs.
fn without_preallocation() -> Options {
    let options = Options::default().get_options_from_string("allow_fallocate=false");
    options.unwrap_or_default() // RocksDB would have to have dropped the setting
}

/// Commits go through the journal of ours, and RocksDB's log and memtables stay empty. What an older version of the format
/// left in a log is read once.
fn set_log(options: &mut Options) {
    // Up to the first hole: what survives a power cut is a prefix. A torn tail is no error.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    // Nothing is written into it, but what an earlier version left in RocksDB's log. And where space was short once, RocksDB merges only what
    // this much, and all that it merges, are free for.
    options.set_write_buffer_size(128 << 10);
}

/// `small`: filters and indexes of the whole store fit into the cache.
fn set_tables(options: &mut Options, cache: &Cache, small: bool) {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(cache);
    tables.set_block_size(4096);
    tables.set_format_version(6);
    tables.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    tables.set_data_block_hash_ratio(0.75);
    // Filters and indexes live inside the block cache: memory is bounded whatever the number of files.
    // While all of them fit, one filter a table halves the price of a look-up that misses; beyond, a
    // cache miss must not read a megabyte, so new tables get theirs in pages. Both kinds live together.
    tables.set_bloom_filter(10.0, false);
    tables.set_optimize_filters_for_memory(true);
    if !small {
        tables.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        tables.set_partition_filters(true);
    }
    tables.set_metadata_block_size(4096);
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tables.set_pin_top_level_index_and_filter(true);
    options.set_block_based_table_factory(&tables);
    options.set_compression_type(DBCompressionType::Lz4);
}

fn set_background(options: &mut Options) {
    // One flush and one compaction at a time; what the latter gets of the processors: `priority`.
    options.set_max_background_jobs(2);
    // Written back as it is written, so that the sync at a table's end is short and a commit's sync
    // does not wait behind it.
    options.set_bytes_per_sync(MIB as u64);
    options.set_target_file_size_base(TABLE_BYTES);
    // The keys of entries come in no order, so that each compaction of the youngest tables rewrites the whole level below
    // them: that is small, and they are gathered. (Four and 256 MiB took twice the CPU time; figures in ADR-0001.)
    options.set_max_bytes_for_level_base(32 * MIB as u64);
    // Reads pay a little for many young tables, writes would pay a lot for waiting.
    options.set_level_zero_file_num_compaction_trigger(12);
    // Whose range waits longest goes first, so that everything takes its turn.
    options.set_compaction_pri(CompactionPri::OldestSmallestSeqFirst);
    options.set_avoid_unnecessary_blocking_io(true);
}

fn set_opening(options: &mut Options) {
    options.create_if_missing(false);
    options.set_paranoid_checks(true);
    // Finite: only a few tables are opened at the start, and their readers' memory is bounded.
    options.set_max_open_files(512);
    // Not its 16: a process may have few (`allowance`), and what more would save is round trips where the store is on a network.
    options.set_max_file_opening_threads(OPENING_THREADS);
    // What was written one after the other is read so: the kernel reads ahead where it sees that, and only there.
    options.set_advise_random_on_open(false);
    // Samples a few tables, so that the number of keys is known after opening too.
    options.set_skip_stats_update_on_db_open(false);
    options.set_max_manifest_file_size(16 * MIB);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(MIB);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_stay_within_the_whole() {
        for memory_bytes in [16 * MIB, 384 * MIB, 4096 * MIB] {
            let budget = Budget::of(memory_bytes);
            assert!(budget.records_bytes + budget.recent_bytes + budget.blocks_bytes <= memory_bytes);
            assert!(budget.blocks_bytes >= memory_bytes / 10 * 3);
            assert!(budget.segment_bytes <= memory_bytes as u64 / 16);
        }
    }

    #[test]
    fn where_there_is_little_memory_recent_values_get_less() {
        let given = |memory_bytes| Budget::of(480 * MIB).within(memory_bytes).recent_bytes;
        assert_eq!([24 << 30, 2 << 30, 0].map(given), [60 * MIB, 32 * MIB, 0]);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("memory.max");
        for (words, limit) in [("max\n", None), ("536870912\n", Some(512 << 20)), ("", None)] {
            fs::write(&file, words).unwrap();
            assert_eq!(limit_in(&file), limit, "{words}");
        }
        assert_eq!(limit_in(&directory.path().join("none")), None);
        assert!(memory_there() > 0);
        let groups = directory.path();
        for (group, file, bytes) in [
            ("a", "memory.max", "5000"),
            ("a/b", "memory.max", "max"),
            ("memory", "memory.limit_in_bytes", "9223372036854771712"),
            ("memory/c", "memory.limit_in_bytes", "7000"),
        ] {
            fs::create_dir_all(groups.join(group)).unwrap();
            fs::write(groups.join(group).join(file), bytes).unwrap();
        }
        fs::remove_file(file).unwrap();
        let lines = [
            ("0::/a/b", Some(5000)),
            ("0::/", None),
            ("4:cpu,memory:/c/d", Some(7000)),
            ("3:memory:/", Some(9_223_372_036_854_771_712)),
            ("2:cpu:/a", None),
            ("1:name=systemd:/a", None),
            ("nonsense", None),
        ];
        lines.iter().for_each(|(line, limit)| assert_eq!(limit_of(groups, line), *limit, "{line}"));
    }

    #[test]
    fn a_store_that_outgrows_the_cache_gets_filters_in_pages() {
        let budget = Budget::of(384 * MIB);
        assert!(budget.filters_fit(1 << 30));
        assert!(!budget.filters_fit(20 << 30));
    }
}
