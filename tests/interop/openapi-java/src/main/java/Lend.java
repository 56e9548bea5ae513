import com.fasterxml.jackson.databind.ObjectMapper;
import headwater.ApiClient;
import headwater.ApiException;
import headwater.api.EventsApi;
import headwater.model.Append;
import headwater.model.Condition;
import headwater.model.Envelope;
import headwater.model.Event;
import headwater.model.Query;
import headwater.model.QueryItem;
import headwater.model.Read;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Lends copies of books: it reads, decides and appends, and it follows.
 *
 * <pre>
 *   Lend URL LOG lend COPY MEMBER
 *   Lend URL LOG follow COUNT
 * </pre>
 */
public class Lend {
    private final String url;
    private final String log;
    private final HttpClient http = HttpClient.newHttpClient();
    private final ObjectMapper mapper = ApiClient.createDefaultObjectMapper();
    private final EventsApi events;

    Lend(String url, String log) {
        this.url = url;
        this.log = log;
        var client = new ApiClient();
        client.updateBaseUri(url);
        events = new EventsApi(client);
    }

    /** What a decision about a copy depends on. */
    static Query boundary(String copy) {
        var item = new QueryItem().types(List.of("CopyLent", "CopyReturned")).tags(List.of("copy:" + copy));
        return new Query().items(List.of(item));
    }

    /** Reads, decides and appends, and begins again when somebody was faster. Answers the number of the event. */
    long lend(String copy, String member) throws Exception {
        while (true) {
            var read = ask(HttpRequest.newBuilder(URI.create(url + "/logs/" + log + "/read"))
                    .header("content-type", "application/json")
                    .header("accept", "application/x-ndjson;end=line")
                    .POST(BodyPublishers.ofByteArray(mapper.writeValueAsBytes(new Read().query(boundary(copy))))));
            var lines = read.body().toList();
            if (lines.isEmpty() || !lines.get(lines.size() - 1).startsWith("{\"end\":")) {
                throw new IllegalStateException("read: it broke off"); // a proxy may end it as if it were whole
            }
            String holder = null;
            for (var line : lines.subList(0, lines.size() - 1)) {
                var event = mapper.readValue(line, Envelope.class).getEvent();
                var isLent = event.getType().equals("CopyLent");
                holder = isLent ? mapper.readTree(event.getData()).get("member").asText() : null;
            }
            if (holder != null) {
                throw new IllegalStateException("refused: copy " + copy + " is lent to " + holder);
            }
            var head = read.headers().firstValueAsLong("headwater-head").orElseThrow();
            var lent = new Event()
                    .type("CopyLent")
                    .data(mapper.writeValueAsString(Map.of("copy", copy, "member", member)))
                    .tags(List.of("copy:" + copy, "member:" + member));
            var condition = new Condition().failIfEventsMatch(boundary(copy)).after(head);
            try {
                var append = new Append().events(List.of(lent)).condition(condition);
                return events.append(log, append, null, null, null).getSequenceNumber();
            } catch (ApiException refused) {
                if (refused.getCode() != 409) {
                    throw refused;
                }
            }
        }
    }

    /** Writes so many events, from the first on, and waits for those that are to come. */
    void follow(long count) throws Exception {
        var stream = ask(HttpRequest.newBuilder(URI.create(url + "/logs/" + log + "/subscribe?query=all&after=0")));
        try (var lines = stream.body()) {
            var messages = lines.filter(line -> line.startsWith("data: ")).iterator();
            for (; count > 0 && messages.hasNext(); count--) {
                var envelope = mapper.readValue(messages.next().substring("data: ".length()), Envelope.class);
                System.out.println(envelope.getSequenceNumber() + " " + envelope.getEvent().getType());
            }
        }
        if (count > 0) {
            throw new IllegalStateException("the subscription ended"); // a proxy may end it as if it were whole
        }
    }

    /** An answer line by line: the generated client waits for the end of a text, which a subscription has not. */
    private HttpResponse<Stream<String>> ask(HttpRequest.Builder request) throws Exception {
        var answer = http.send(request.build(), BodyHandlers.ofLines());
        if (answer.statusCode() != 200) {
            throw new IllegalStateException(String.join("", answer.body().toList()));
        }
        return answer;
    }

    public static void main(String[] arguments) {
        var library = new Lend(arguments[0], arguments[1]);
        try {
            if (arguments[2].equals("lend")) {
                System.out.println("event " + library.lend(arguments[3], arguments[4]));
            } else {
                library.follow(Long.parseLong(arguments[3]));
            }
        } catch (Exception failed) {
            System.out.println(failed.getMessage());
            System.exit(1);
        }
        System.exit(0); // what waits in the client's own threads is not waited for
    }
}
