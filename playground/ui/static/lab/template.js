export default /* HTML */ `
  <div class="lab pg">
    <h2 class="unseen">Lab</h2>
    <div class="desk">
      <div class="side">
        <section class="presets" aria-label="Prepared experiments">
          <h3>Prepared experiments</h3>
          <p class="hint">
            Change one setting and compare the results. Every value is trained with several seeds.
          </p>
          <ul class="questions"></ul>
          <details class="own">
            <summary>New experiment</summary>
            <form class="own-form" novalidate></form>
          </details>
          <p class="problem form-note" role="alert"></p>
        </section>
        <section class="mine" aria-label="Your experiments">
          <h3>Your experiments</h3>
          <p class="hint none">
            No experiments yet. Run one above; it continues in the background and survives a reload.
          </p>
          <ul class="experiments"></ul>
          <p class="problem mine-note" role="alert"></p>
        </section>
      </div>
      <section class="results" aria-label="Open experiment"></section>
    </div>
    <section class="published" aria-label="Replications">
      <h3>Replications</h3>
      <p class="hint">
        Published claims, trained here with the published settings as far as they are known.
        Differences are listed.
      </p>
      <p class="problem published-note" role="alert"></p>
      <table class="sheet claims">
        <thead></thead>
        <tbody></tbody>
      </table>
    </section>
  </div>
`;
