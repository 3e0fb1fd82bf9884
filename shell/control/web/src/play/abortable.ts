// Requests of dash.js that can be aborted though CMCD has made copies of them.

/** A request on its way to an appliance: what is done to it, and by whom. */
export interface Asked {
  customData: object;
}
export type Interceptor = (asked: Asked) => Asked | Promise<Asked>;

const abortable = new WeakSet<Interceptor>();

/**
 * By itself (5.2.1), CMCD makes a copy of each request, and how to abort it is written into the
 * copy. So a segment that it gave up for one of a lower rendition still comes, and is appended
 * behind that one's initialization: the decoder fails, and the film stands still. Here what was
 * done to the copy is done to the request.
 */
export function leaveAbortable(interceptors: Interceptor[]): void {
  const [say] = interceptors;
  if (!say || abortable.has(say)) return;
  const both: Interceptor = async (asked) => {
    const said = await say(asked);
    const customData = Object.assign(asked.customData, said.customData);
    return Object.assign(asked, said, { customData });
  };
  abortable.add(both);
  interceptors[0] = both;
}
