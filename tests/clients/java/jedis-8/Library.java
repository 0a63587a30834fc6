import java.util.HashSet;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClusterClient;

/** Jedis with nothing set but where to begin. */
final class Library {
  static Client connect(List<String> seeds) {
    Set<HostAndPort> nodes = new HashSet<>();
    seeds.forEach(each -> nodes.add(HostAndPort.from(each)));
    RedisClusterClient client = RedisClusterClient.create(nodes);
    return new Client() {
      @Override
      public void set(String key, String value) {
        client.set(key, value);
      }

      @Override
      public String get(String key) {
        return client.get(key);
      }
    };
  }
}
