package examples;

import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.stereotype.Service;

/** The numbers of articles, in keys of the server. To read a number and write another takes two commands: the lock of the article joins them. */
@Service
public class Stock {
    private final LockRegistry<?> locks;
    private final StringRedisTemplate numbers;

    Stock(LockRegistry<?> locks, StringRedisTemplate numbers) {
        this.locks = locks;
        this.numbers = numbers;
    }

    /** Sells one article. Returns false if none is left. */
    public boolean sell(String article) throws InterruptedException {
        return locks.executeLocked(article, () -> {
            int left = left(article);
            if (left > 0) {
                numbers.opsForValue().set(article, Integer.toString(left - 1));
            }
            return left > 0;
        });
    }

    /** Adds to the number of an article. */
    public void order(String article, int number) throws InterruptedException {
        locks.executeLocked(article, () -> numbers.opsForValue().set(article, Integer.toString(left(article) + number)));
    }

    private int left(String article) {
        String left = numbers.opsForValue().get(article);
        return left == null ? 0 : Integer.parseInt(left);
    }
}
