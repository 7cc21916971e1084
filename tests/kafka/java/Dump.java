import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * Dump PLAN OUT: runs Kafka's dump tool once for each line of PLAN, whose words are its arguments,
 * in one JVM. N.out and N.err in OUT are what it printed for line N, with what it threw at the end
 * of N.err; N.ms is how many milliseconds it took.
 */
public class Dump {
    public static void main(String[] arguments) throws Exception {
        List<String> plan = Files.readAllLines(Path.of(arguments[0]));
        PrintStream stdout = System.out;
        PrintStream stderr = System.err;
        for (int n = 0; n < plan.size(); n++) {
            Path out = Path.of(arguments[1], n + ".out");
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            long began = System.nanoTime();
            // As the JVM does it for stdout: a small buffer, and a write for each line.
            try (PrintStream text = new PrintStream(new java.io.BufferedOutputStream(
                    new java.io.FileOutputStream(out.toFile()), 8192), true, "UTF-8")) {
                System.setOut(text);
                System.setErr(new PrintStream(err, true, "UTF-8"));
                DumpLogSegments.main(plan.get(n).split(" "));
            } catch (Throwable thrown) {
                err.write(("threw " + thrown + "\n").getBytes(StandardCharsets.UTF_8));
            } finally {
                System.setOut(stdout);
                System.setErr(stderr);
            }
            long millis = (System.nanoTime() - began) / 1_000_000;
            Files.write(Path.of(arguments[1], n + ".err"), err.toByteArray());
            Files.writeString(Path.of(arguments[1], n + ".ms"), Long.toString(millis));
        }
    }
}
