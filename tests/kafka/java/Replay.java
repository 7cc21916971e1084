import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Replay TARGET PLAN: appends the batches of partitions once more, through Kafka's own UnifiedLog,
 * one append a batch, and leaves what Kafka writes beside them: indexes, snapshots, epochs.
 *
 * Each line of PLAN is a partition's directory and words NAME=VALUE: properties of the topic;
 * as=leader (offsets and epochs are given anew) or as=follower (the default: they are kept);
 * reopen=OFFSET,OFFSET: the log is closed in order and opened again before those batches. The new
 * partition is TARGET/NAME.
 */
public class Replay {
    public static void main(String[] args) throws Exception {
        Path target = Path.of(args[0]);
        for (String line : Files.readAllLines(Path.of(args[1]))) {
            String[] words = line.split(" ");
            Path source = Path.of(words[0]);
            Map<String, String> settings = new HashMap<>();
            for (String word : Arrays.asList(words).subList(1, words.length)) {
                int equals = word.indexOf('=');
                settings.put(word.substring(0, equals), word.substring(equals + 1));
            }
            Path partition = Files.createDirectories(target.resolve(source.getFileName()));
            replay(source, partition.toFile(), settings);
        }
    }

    static void replay(Path source, File target, Map<String, String> settings) throws Exception {
        boolean leader = "leader".equals(settings.remove("as"));
        Set<Long> reopen = offsets(settings.remove("reopen"));
        LogConfig config = config(settings);
        List<Path> files = segments(source);
        long start = Long.parseLong(files.get(0).getFileName().toString().substring(0, 20));
        UnifiedLog log = open(target, config, start, start, true);
        for (Path file : files) {
            try (FileRecords records = FileRecords.open(file.toFile(), false)) {
                for (FileChannelRecordBatch batch : records.batches()) {
                    if (reopen.contains(batch.baseOffset())) {
                        close(log);
                        log = open(target, config, start, log.logEndOffset(), true);
                    }
                    append(log, batch, leader);
                }
            }
        }
        close(log);
    }

    static void append(UnifiedLog log, FileChannelRecordBatch batch, boolean leader)
        throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(bytes);
        bytes.flip();
        if (leader) {
            bytes.putLong(0, 0); // as a producer sends it; the CRC does not cover the base offset
            log.appendAsLeader(MemoryRecords.readableRecords(bytes), batch.partitionLeaderEpoch());
        } else {
            log.appendAsFollower(MemoryRecords.readableRecords(bytes), Integer.MAX_VALUE);
        }
    }

    /** Opens as after an orderly end or a crash, or afresh in an empty directory. */
    static UnifiedLog open(File directory, LogConfig config, long start, long recoveryPoint,
        boolean clean) throws IOException {
        return UnifiedLog.create(directory, config, start, recoveryPoint, new Inline(),
            new BrokerTopicStats(), Time.SYSTEM, Integer.MAX_VALUE,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Integer.MAX_VALUE,
            new LogDirFailureChannel(1), clean, Optional.empty());
    }

    /** What LogManager.shutdown does with a log. UnifiedLog.close alone leaves padded indexes. */
    static void close(UnifiedLog log) throws IOException {
        log.flush(true);
        log.prepareActiveSegmentForClose();
        log.close();
    }

    static LogConfig config(Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.putIfAbsent("retention.ms", "-1");
        all.putIfAbsent("segment.ms", String.valueOf(Long.MAX_VALUE));
        all.putIfAbsent("message.timestamp.after.max.ms", String.valueOf(Long.MAX_VALUE));
        // Kafka takes less than 1 MiB under this name only.
        Object segmentBytes = all.remove("segment.bytes");
        if (segmentBytes != null) all.put("internal.segment.bytes", segmentBytes);
        return new LogConfig(all);
    }

    static List<Path> segments(Path partition) throws IOException {
        try (Stream<Path> files = Files.list(partition)) {
            return files.filter(file -> file.toString().endsWith(".log")).sorted().toList();
        }
    }

    static Set<Long> offsets(String list) {
        Set<Long> offsets = new HashSet<>();
        if (list != null) for (String offset : list.split(",")) offsets.add(Long.parseLong(offset));
        return offsets;
    }

    /** Does at once what is to be done once and now, and nothing else. */
    static class Inline implements Scheduler {
        static final ScheduledExecutorService NEVER =
            Executors.newSingleThreadScheduledExecutor(task -> {
                Thread thread = new Thread(task);
                thread.setDaemon(true);
                return thread;
            });

        public void startup() {}
        public void shutdown() {}
        public void resizeThreadPool(int size) {}

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs,
            long periodMs) {
            if (delayMs <= 0 && periodMs <= 0) task.run();
            return NEVER.schedule(() -> {}, 365, TimeUnit.DAYS);
        }
    }
}
