import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** What Counters needs of a library; a Library beside it connects one. */
interface Client {
  void set(String key, String value);

  String get(String key);
}

/**
 * Counters through the library that Library connects, as its manual shows it.
 *
 * <p>Arguments: HOST:PORT,HOST:PORT PREFIX EVERY_MS shared|each. The client serves all workers,
 * whatever the last word says. The contract of this program and its siblings in other languages is
 * in tests/clients/README.md.
 */
final class Counters {
  static final int WORKERS = 4;
  static final int KEYS_EACH = 8;
  static final int END_S_MAX = 15;

  static final CountDownLatch ending = new CountDownLatch(1);
  static final CountDownLatch finished = new CountDownLatch(WORKERS);
  static long everyMs;

  // All that follows under the lock of this class.
  static int commands;
  static int failed;
  static int failedAtEnd;
  static double longestMs;
  static double unwritableMs;
  static int begun;
  static final List<String> wrong = new ArrayList<>();
  static final Map<String, Integer> errors = new TreeMap<>();

  static synchronized void command(double tookMs, Exception error, boolean isLast) {
    commands++;
    longestMs = Math.max(longestMs, tookMs);
    if (error == null) {
      return;
    }
    failed++;
    failedAtEnd += isLast ? 1 : 0;
    String said = error.getClass().getSimpleName() + ": " + error.getMessage();
    said = said.replaceAll("\\d+", "N").replaceAll("[\"\\\\\\p{Cntrl}]", " ");
    errors.merge(said.substring(0, Math.min(said.length(), 100)), 1, Integer::sum);
  }

  static synchronized void written(double tookMs) {
    unwritableMs = Math.max(unwritableMs, tookMs);
  }

  static synchronized void begin() {
    begun++;
    if (begun == WORKERS) {
      System.out.println("ready");
    }
  }

  static synchronized void wrong(String text) {
    wrong.add(text);
  }

  /** One key: what was last acknowledged, and what may or may not have taken effect. */
  static final class Counter {
    final String key;
    String last;
    final Set<String> maybe = new HashSet<>();
    Long since;

    Counter(String key) {
      this.key = key;
    }
  }

  /** Writes ever larger numbers to keys of its own, in turn, and reads back each of them. */
  static final class Worker implements Runnable {
    private final Client client;
    private final List<Counter> counters = new ArrayList<>();
    private final int number;
    private int value;
    private boolean fails;

    Worker(Client client, String prefix, int number) {
      this.client = client;
      this.number = number;
      for (int key = 0; key < KEYS_EACH; key++) {
        counters.add(new Counter(prefix + "-" + number + "-" + key));
      }
    }

    @Override
    public void run() {
      boolean begun = false;
      boolean isLast = false;
      while (!isLast) {
        isLast = isEnding(0); // one whole round after the end was asked for
        fails = false;
        for (Counter each : counters) {
          boolean written = set(each, isLast);
          while (!isEnding(everyMs) && !written) {
            written = set(each, isLast);
          }
          if (written && !begun) {
            begun = true;
            begin();
          }
          get(each, isLast);
          isEnding(everyMs);
        }
        if (!fails) {
          System.out.println("round " + number);
        }
      }
      finished.countDown();
    }

    private boolean set(Counter each, boolean isLast) {
      String text = Integer.toString(++value);
      long began = System.nanoTime();
      if (each.since == null) {
        each.since = began;
      }
      Exception error = null;
      try {
        client.set(each.key, text);
      } catch (RuntimeException caught) {
        error = caught;
        fails = true;
        each.maybe.add(text);
      }
      long ended = System.nanoTime();
      command((ended - began) / 1e6, error, isLast);
      if (error == null) {
        each.last = text;
      }
      if (error == null || isLast) {
        written((ended - each.since) / 1e6);
        each.since = null;
      }
      return error == null;
    }

    private void get(Counter each, boolean isLast) {
      long began = System.nanoTime();
      Exception error = null;
      String found = null;
      try {
        found = client.get(each.key);
      } catch (RuntimeException caught) {
        error = caught;
        fails = true;
      }
      command((System.nanoTime() - began) / 1e6, error, isLast);
      if (error != null || Objects.equals(found, each.last)) {
        return;
      }
      if (each.maybe.remove(found)) {
        // A write of which nobody knew whether it took effect: it did, and only once.
        each.last = found;
        return;
      }
      wrong(each.key + ": " + found + " instead of " + each.last);
    }
  }

  /** Whether the end was asked for, within so many milliseconds. */
  static boolean isEnding(long waitMs) {
    try {
      return ending.await(waitMs, TimeUnit.MILLISECONDS);
    } catch (InterruptedException error) {
      return true;
    }
  }

  static synchronized String report() {
    String said =
        errors.entrySet().stream()
            .map(each -> "\"" + each.getKey() + "\": " + each.getValue())
            .collect(Collectors.joining(", "));
    String examples =
        wrong.stream().limit(5).map(each -> "\"" + each + "\"").collect(Collectors.joining(", "));
    return String.format(
        "{\"commands\": %d, \"failed\": %d, \"failed_at_end\": %d, \"wrong\": %d,"
            + " \"longest_ms\": %d, \"unwritable_ms\": %d, \"unfinished\": %d,"
            + " \"errors\": {%s}, \"examples\": [%s]}",
        commands,
        failed,
        failedAtEnd,
        wrong.size(),
        Math.round(longestMs),
        Math.round(unwritableMs),
        finished.getCount(),
        said,
        examples);
  }

  public static void main(String[] arguments) throws IOException, InterruptedException {
    List<String> seeds = List.of(arguments[0].split(","));
    everyMs = Long.parseLong(arguments[2]);
    Client client = Library.connect(seeds);
    for (int number = 0; number < WORKERS; number++) {
      Thread thread = new Thread(new Worker(client, arguments[1], number));
      thread.setDaemon(true);
      thread.start();
    }
    System.in.readAllBytes(); // until whoever started this closes it
    ending.countDown();
    finished.await(END_S_MAX, TimeUnit.SECONDS);
    System.out.println(report());
    System.out.flush();
    Runtime.getRuntime().halt(0); // a worker that hangs must not keep the process
  }
}
