// Whether the film moves: first frame, seconds played, stalls.

/** A stall is this long without progress while the film should play. */
export const STALL_MS = 450;

const SAMPLE_MS = 50;

/** Further than this between two samples the film did not play but jump: to where it is resumed. */
const JUMP_S = 2;

/** The part of a video element that matters here; tests pass a stand-in. */
export interface Playable {
  currentTime: number;
  paused: boolean;
  ended: boolean;
  seeking: boolean;
}

export class Progress {
  firstFrameMs: number | null = null;
  stalls = 0;
  playedS = 0;
  private stalledMs = 0;
  /** When the present stall began; null while the film moves. */
  stalledSince: number | null = null;
  private lastMove = 0;
  private lastTime = 0;

  /** Call when the first frame is on the screen. */
  firstFrame(now: number, video: Playable): void {
    if (this.firstFrameMs !== null) return;
    this.firstFrameMs = now;
    this.lastMove = now;
    this.lastTime = video.currentTime;
  }

  /** Call often. Between two calls the film may move without being seen: that is no stall. */
  sample(now: number, video: Playable): void {
    if (this.firstFrameMs === null) return;
    const time = video.currentTime;
    const should = !video.paused && !video.ended && !video.seeking;
    const moved = time !== this.lastTime;
    const step = time - this.lastTime;
    if (should && step > 0 && step <= JUMP_S) this.playedS += step;
    if (moved || !should) {
      if (this.stalledSince !== null) this.stalledMs += now - this.stalledSince;
      this.stalledSince = null;
      this.lastMove = now;
      this.lastTime = time;
    } else if (this.stalledSince === null && now - this.lastMove >= STALL_MS) {
      this.stalls += 1;
      this.stalledSince = this.lastMove;
    }
  }

  get stalled(): boolean {
    return this.stalledSince !== null;
  }

  /** Time lost to stalls, the present one included. */
  stallMs(now: number): number {
    return this.stalledMs + (this.stalledSince === null ? 0 : now - this.stalledSince);
  }
}

/** Watches a video element from now on. */
export function watchProgress(video: HTMLVideoElement): Progress {
  const progress = new Progress();
  video.requestVideoFrameCallback(() => progress.firstFrame(performance.now(), video));
  setInterval(() => progress.sample(performance.now(), video), SAMPLE_MS);
  return progress;
}

/** Seconds ready to play after the current position. */
export function bufferAhead(video: HTMLVideoElement): number {
  const { buffered, currentTime } = video;
  for (let index = 0; index < buffered.length; index += 1) {
    // A film may begin a few frames after zero.
    if (buffered.start(index) - 0.2 <= currentTime && currentTime <= buffered.end(index)) {
      return Math.max(0, buffered.end(index) - currentTime);
    }
  }
  return 0;
}
