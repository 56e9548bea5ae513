import io.vertx.amqp.AmqpClient;
import io.vertx.amqp.AmqpClientOptions;
import io.vertx.amqp.AmqpConnection;
import io.vertx.amqp.AmqpMessage;
import io.vertx.amqp.AmqpReceiver;
import io.vertx.amqp.AmqpReceiverOptions;
import io.vertx.amqp.AmqpSender;
import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import java.net.URI;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.json.JSONArray;
import org.json.JSONObject;

/** Send or receive with Vert.x, by the contract in ../README.md: {@code Client OPERATION JSON}. */
public final class Client {
    private final JSONObject request;
    private final long endsAt;
    private final CountDownLatch ended = new CountDownLatch(1);

    private Client(JSONObject request) {
        this.request = request;
        this.endsAt = System.nanoTime() + (long) (request.optDouble("timeout_s", 20) * 1e9);
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client(new JSONObject(arguments[1]));
        client.run(arguments[0]);
        client.say("done", Map.of());
        System.exit(0);
    }

    private synchronized void say(String event, Map<String, ?> more) {
        JSONObject line = new JSONObject(more);
        line.put("event", event);
        System.out.println(line);
        System.out.flush();
    }

    private void run(String operation) throws Exception {
        URI url = URI.create(request.getString("url"));
        AmqpClientOptions options = new AmqpClientOptions().setHost(url.getHost()).setPort(url.getPort());
        AmqpClient client = AmqpClient.create(Vertx.vertx(), options);
        try {
            AmqpConnection connection = get(client.connect());
            say("opened", Map.of("properties", Map.of()));
            switch (operation) {
                case "send" -> send(connection);
                case "receive" -> receive(connection);
                default -> throw new IllegalArgumentException("no such operation: " + operation);
            }
            get(connection.close());
        } catch (ExecutionException error) {
            fail(error.getCause());
        } catch (TimeoutException error) {
            say("timeout", Map.of());
        }
    }

    private <T> T get(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(endsAt - System.nanoTime(), TimeUnit.NANOSECONDS);
    }

    private void send(AmqpConnection connection) throws Exception {
        AmqpSender sender = get(connection.createSender(request.getString("address")));
        say("attached", Map.of("is_refused", false, "properties", Map.of()));
        JSONArray forms = request.getJSONArray("messages");
        for (int index = 0; index < forms.length(); index++) {
            byte[] data = Base64.getDecoder().decode(forms.getJSONObject(index).getString("data"));
            get(sender.sendWithAck(AmqpMessage.create().withBufferAsBody(Buffer.buffer(data)).build()));
        }
        say("sent", Map.of("accepted", forms.length()));
    }

    private void receive(AmqpConnection connection) throws Exception {
        AmqpReceiverOptions options = new AmqpReceiverOptions()
                .setAutoAcknowledgement(false)
                .setMaxBufferedMessages(request.optInt("credit", 100));
        if (request.has("link_name")) options.setLinkName(request.getString("link_name"));
        AmqpReceiver receiver = get(connection.createReceiver(request.getString("address"), options));
        int count = request.optInt("count", 1);
        int[] received = {0};
        receiver.exceptionHandler(this::fail);
        receiver.handler(message -> {
            byte[] data = message.bodyAsBinary().getBytes();
            say("message", Map.of("size", data.length, "data", Base64.getEncoder().encodeToString(data)));
            message.accepted();
            if (++received[0] == count) ended.countDown();
        });
        say("attached", Map.of("is_refused", false, "properties", Map.of()));
        if (!ended.await(endsAt - System.nanoTime(), TimeUnit.NANOSECONDS)) {
            say("timeout", Map.of());
        } else if (received[0] >= count) {
            say("received", Map.of("count", count));
        }
    }

    private void fail(Throwable error) {
        say("error", Map.of("scope", "link", "description", String.valueOf(error.getMessage()), "info", Map.of()));
        ended.countDown();
    }
}
