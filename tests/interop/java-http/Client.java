import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Base64;

/**
 * Java's own HTTP client as it is, which asks on each new connection whether the server speaks HTTP/2.
 *
 * <p>Arguments: METHOD URL MEDIA-TYPE BODY, again and again. It sends them in order, and writes a line for each answer:
 * status, version, body in Base64.
 */
public class Client {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newHttpClient();
        for (int at = 0; at < arguments.length; at += 4) {
            var body = arguments[at + 3].isEmpty() ? BodyPublishers.noBody() : BodyPublishers.ofString(arguments[at + 3]);
            var request = HttpRequest.newBuilder(URI.create(arguments[at + 1]))
                    .method(arguments[at], body)
                    .header("content-type", arguments[at + 2])
                    .build();
            var answer = client.send(request, BodyHandlers.ofByteArray());
            var text = Base64.getEncoder().encodeToString(answer.body());
            System.out.println(answer.statusCode() + " " + answer.version() + " " + text);
        }
    }
}
