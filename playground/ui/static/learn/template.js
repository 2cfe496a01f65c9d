export default /* HTML */ `
  <div class="learn pg">
    <h2 class="unseen">Learn</h2>
    <div class="parts"></div>
    <p class="problem learn-note" role="alert"></p>
    <section class="tour" aria-label="Lessons"></section>
    <section class="bugs" aria-label="Find the bug" hidden></section>
    <section class="teach" aria-label="Teach" hidden></section>
  </div>
`;
