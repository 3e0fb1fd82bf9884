// When to ask again for what could not be had.

/** Asked again, these are answered the same: no leave, or not there. */
const REFUSALS = [401, 403, 404, 410];
const FIRST_MS = 500;
const LAST_MS = 8_000;

/** What a player says that stops. */
export const REFUSED = "All appliances refuse this film";

/**
 * Delays between tries, ms: from 0.5 s, doubled up to 8 s, and up to half more by chance, so that
 * players who all lost the same appliances do not come back at once.
 */
export class Delays {
  private ms = FIRST_MS;

  next(chance = Math.random()): number {
    const { ms } = this;
    this.ms = Math.min(2 * ms, LAST_MS);
    return ms * (1 + chance / 2);
  }

  reset(): void {
    this.ms = FIRST_MS;
  }
}

/** What the appliances that failed a film answered last, and when they are asked again. */
export class Tries {
  /** Status by host, 0 for none. O(appliances that the film was asked of). */
  private readonly failed = new Map<string, number>();
  private readonly delays = new Delays();
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** A segment came from here. */
  came(url: string): void {
    this.failed.delete(new URL(url).host);
    this.delays.reset();
  }

  failedAt(url: string, status: number): void {
    this.failed.set(new URL(url).host, status);
  }

  /** All failed: does `action` after a delay, once. False if at least so many all refused. */
  again(action: () => void, pathways = 1): boolean {
    const answers = [...this.failed.values()];
    const isVain = answers.every((status) => REFUSALS.includes(status));
    if (isVain && pathways <= answers.length) return false;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      action();
    }, this.delays.next());
    return true;
  }

  get isWaiting(): boolean {
    return this.timer !== undefined;
  }

  end(): void {
    clearTimeout(this.timer);
  }
}
